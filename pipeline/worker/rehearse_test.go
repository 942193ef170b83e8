package worker_test

import (
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// TestAWorkerRehearses: a rehearsal leaves what is pending alone, finds each right that the user lacks, and does not
// bring a worker back that has left.
func TestAWorkerRehearses(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	r.CreateGroups()
	r.AdmitMany("buyer", 3)
	p := r.Sale.Partitions[0]
	delivered := r.Redis.Do(r.Ctx(), "XREADGROUP", "GROUP", pipeline.Group, "somebody", "COUNT", 1, "STREAMS",
		r.Keys.Orders(p), ">")
	if err := delivered.Err(); err != nil {
		t.Fatal(err)
	}
	w := r.StartWorker(r.Store, worker.Options{})
	testkit.Eventually(t, pipelinetest.SettleLimit, "the worker is ready", func() bool {
		return w.Rehearse(r.Ctx()) == nil
	})
	rights := func(rules ...any) {
		t.Helper()
		if err := r.Redis.Do(r.Ctx(), append([]any{"ACL", "SETUSER", "default"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{
		"xreadgroup", "xack", "xdel", "xpending", "xclaim", "xautoclaim", "set", "mget", "del", "evalsha",
	} {
		rights("-" + command)
		err := w.Rehearse(r.Ctx())
		rights("+@all")
		if err == nil {
			t.Errorf("without %s: the worker is ready", command)
		}
	}
	if err := w.Rehearse(r.Ctx()); err != nil {
		t.Errorf("with all rights again: %v", err)
	}
	r.Settled()
	r.Balanced(r.Sale, 3)
	w.Stop()
	pipelinetest.WantKind(t, w.Rehearse(r.Ctx()), pipeline.KindUnavailable)
	if n := r.Redis.Exists(r.Ctx(), r.Keys.Worker(p, w.Name())).Val(); n != 0 {
		t.Error("the rehearsal brought the worker's heartbeat back")
	}
}
