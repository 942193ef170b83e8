package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

// other is a rig of another installation: the same Redis and keys, another migrated database.
func (r *rig) other() *rig {
	r.Helper()
	o := &rig{T: r.T, opts: r.opts, registry: prometheus.NewRegistry(), log: r.log, bound: r.bound}
	o.opts.DatabaseURL = testkit.Database(r.T)
	o.connect()
	o.rdb, o.keys = r.rdb, r.keys
	o.metrics = pipeline.NewMetrics(o.registry)
	return o
}

func (r *rig) owner(p pipeline.Partition) string {
	return r.rdb.Get(r.ctx(), r.keys.Installation(p)).Val()
}

func (r *rig) installation() string {
	r.Helper()
	id, err := r.store.Installation(r.ctx())
	if err != nil || id == "" {
		r.Fatalf("installation: got %q, %v", id, err)
	}
	return id
}

// TestAForeignWorkerLeavesOrdersAlone: a worker of another database on the same Redis neither persists, nor buries, nor
// acknowledges what it is given; the right worker gets all of it.
func TestAForeignWorkerLeavesOrdersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	theirs := r.other()
	r.admitMany("buyer", 20)
	foreign := theirs.startWorker(theirs.store, pipeline.WorkerOptions{ClaimMinIdle: 11 * time.Second})
	testkit.Eventually(t, settleLimit, "the foreign worker is given events", func() bool { return theirs.count("sluice_worker_errors_total") > 0 })
	foreign.stop()
	if got := len(r.events(r.sale)); got != 20 {
		t.Errorf("%d of 20 events are in the stream", got)
	}
	if got := theirs.letters(); len(got) != 0 {
		t.Errorf("the foreign worker buried %v", got)
	}
	r.startWorker(r.store, pipeline.WorkerOptions{})
	r.settled()
	r.balanced(r.sale, 20)
}

// TestAForeignVerifierVerifiesNothing: it neither trusts nor takes what belongs to another installation, whatever state it
// is in; an operator's rebuild doesn't either.
func TestAForeignVerifierVerifiesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	theirs := r.other()
	ensure := func() error {
		return pipeline.EnsureVerified(theirs.ctx(), theirs.rdb, theirs.keys, theirs.store, theirs.opts.Partitions, theirs.log)
	}
	if err := ensure(); !pipeline.IsForeign(err) || !strings.Contains(err.Error(), r.installation()) {
		t.Errorf("a trusted Redis: got %v, want it refused, with its owner", err)
	}
	p := r.sale.Partitions[0]
	if err := r.rdb.Set(r.ctx(), r.keys.Trusted(p), "another-process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := ensure(); !pipeline.IsForeign(err) {
		t.Errorf("a Redis that restarted: got %v, want it refused", err)
	}
	if got := r.rdb.Get(r.ctx(), r.keys.Trusted(p)).Val(); got != "another-process" {
		t.Errorf("the foreign verifier wrote %q", got)
	}
	same := usualSale(pipeline.Sale{Partitions: r.sale.Partitions})
	if err := theirs.store.CreateSale(theirs.ctx(), same); err != nil {
		t.Fatal(err)
	}
	verifier := pipeline.NewVerifier(theirs.verifierConfig())
	if _, err := verifier.Rebuild(theirs.ctx(), same.ID, "ann", true); !pipeline.IsForeign(err) {
		t.Errorf("a rebuild by the other installation: got %v, want it refused", err)
	}
	r.ensure()
	if !r.trusted() {
		t.Error("the right verifier did not verify it")
	}
}

// TestAFlushedRedisIsTakenAgain: after FLUSHALL it belongs to whoever verifies it first, and so does one whose owner's key
// alone is lost.
func TestAFlushedRedisIsTakenAgain(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	for _, command := range [][]any{{"FLUSHALL"}, {"DEL", r.keys.Installation(1)}} {
		if err := r.rdb.Do(r.ctx(), command...).Err(); err != nil {
			t.Fatal(err)
		}
		r.ensure()
		for p := range pipeline.Partition(r.opts.Partitions) {
			if got := r.owner(p); got != r.installation() {
				t.Errorf("%v: %s belongs to %q, want %q", command, p, got, r.installation())
			}
		}
	}
}

// TestAGuardedProcessKeepsAway: open connections are refused from the verifier's next look on, new ones at once, and all work
// again when Redis is ours again.
func TestAGuardedProcessKeepsAway(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{RedisURL: server.URL()})
	guard := pipeline.NewGuard(r.keys)
	guard.Set(r.installation(), r.opts.Partitions)
	connect := func(onConnect func(context.Context, *redis.Conn) error) *redis.Client {
		opts, err := redis.ParseURL(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		opts.OnConnect, opts.MaxRetries, opts.ContextTimeoutEnabled = onConnect, -1, true
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	guarded, open := connect(guard.OnConnect), connect(nil)
	guarded.AddHook(guard)
	open.AddHook(guard) // only the hook: what this client is refused, it is refused on any connection
	config := r.verifierConfig()
	config.Redis, config.Found = guarded, guard.Found
	verifier := pipeline.NewVerifier(config)
	ctx, stop := context.WithCancel(r.ctx())
	var running sync.WaitGroup
	running.Go(func() { verifier.Run(ctx) })
	defer running.Wait()
	defer stop()
	guardedAdmission := r.newAdmission(guarded, pipeline.AdmissionOptions{})
	try := func(user string) error {
		decision, err := guardedAdmission.Admit(r.ctx(), r.sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err == nil && decision.Result != pipeline.AdmissionAccepted {
			err = fmt.Errorf("code %s", decision.Result)
		}
		return err
	}
	if err := try("ann"); err != nil {
		t.Fatal(err)
	}
	own := func(id string) {
		for p := range pipeline.Partition(r.opts.Partitions) {
			if err := r.rdb.Set(r.ctx(), r.keys.Installation(p), id, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	own("another")
	testkit.Eventually(t, settleLimit, "open connections are refused", func() bool { return pipeline.IsForeign(open.Ping(r.ctx()).Err()) })
	if err := try("bob"); pipeline.KindOf(err) != pipeline.KindUnavailable {
		t.Errorf("an order: got %v, want it unavailable", err)
	}
	// Without the hook: this is the connection's own check.
	if err := connect(guard.OnConnect).Ping(r.ctx()).Err(); !pipeline.IsForeign(err) {
		t.Errorf("a new connection: got %v, want it refused", err)
	}
	own(r.installation())
	testkit.Eventually(t, settleLimit, "orders are taken again", func() bool { return try("bob") == nil })
}
