package admission_test

import (
	"testing"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
)

// TestAnOrderIsRehearsed: a rehearsal changes nothing, and finds each right that an order's user lacks, and a partition
// that is not verified.
func TestAnOrderIsRehearsed(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: server.URL()})
	p := r.Sale.Partitions[0]
	allow := func(rules ...any) {
		t.Helper()
		all := append([]any{"ACL", "SETUSER", "shop", "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)
		if err := r.Redis.Do(r.Ctx(), all...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow()
	api := r.NewAdmission(asUser(t, server.URL(), "shop", "secret"), admission.Options{})
	if err := api.Rehearse(r.Ctx(), p); err != nil { // it leases numbers
		t.Fatal(err)
	}
	before := r.Dump(r.Sale)
	for _, command := range []string{"xadd", "hset", "hmget", "xlen", "get", "info", "time", "evalsha"} {
		allow("-" + command)
		if api.Rehearse(r.Ctx(), p) == nil {
			t.Errorf("without %s: an order would be taken", command)
		}
	}
	for _, key := range []string{r.Keys.Sale(p, "*"), r.Keys.Orders(p), r.Keys.Trusted(p)} {
		allow("resetkeys", "~"+key)
		if api.Rehearse(r.Ctx(), p) == nil {
			t.Errorf("with a right to %s only: an order would be taken", key)
		}
	}
	allow()
	if err := api.Rehearse(r.Ctx(), p); err != nil {
		t.Errorf("with all rights again: %v", err)
	}
	if got := r.Dump(r.Sale); got != before {
		t.Errorf("got %s, want nothing changed: %s", got, before)
	}
	if err := r.Redis.Set(r.Ctx(), r.Keys.Trusted(p), "another-process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pipelinetest.WantKind(t, api.Rehearse(r.Ctx(), p), pipeline.KindUnavailable)
}
