package httpapi_test

import (
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// giveStrict produces the answer of a service that accepts nothing which no replica has, and whose replica goes away:
// also to a buyer whose order was accepted before.
func giveStrict(t *testing.T, c *contract) {
	server := testkit.PrivateRedis(t)
	second := testkit.PrivateReplica(t, server)
	r := newRig(t, rigOptions{
		contract: c, redisURL: server.URL(),
		admission: admission.Options{Durability: pipeline.DurabilityReplica, DurabilityStrict: true},
	})
	r.create(newSale("drop-1", 10))
	accepted := func(user string) receipt {
		t.Helper()
		var got reply
		testkit.Eventually(t, time.Minute, user+" to be accepted", func() bool {
			got = r.do(order("drop-1", user, "").with("Idempotency-Key", "k"))
			return got.status == 202
		})
		placed := decode[receipt](t, got)
		if placed.Durability != "replica" {
			t.Errorf("%s: got durability %q, want replica", user, placed.Durability)
		}
		return placed
	}
	first := accepted("ann")
	must(t, second.Pause())
	var refused reply
	testkit.Eventually(t, time.Minute, "orders to be refused", func() bool {
		refused = r.do(order("drop-1", "ann", "").with("Idempotency-Key", "k"))
		return refused.code() == "durability-unavailable"
	})
	if got := refused.header.Get("Retry-After"); refused.status != 503 || got != "1" {
		t.Errorf("got %d, Retry-After %q, want 503 and 1", refused.status, got)
	}
	r.expect(order("drop-1", "bob", ""), 503, "durability-unavailable")
	r.expect(get("/v1/sales/drop-1/orders/mine", "bob"), 404, "unknown-order")
	must(t, second.Resume())
	if again := accepted("ann"); again != first {
		t.Errorf("ann's receipt: got %+v, want %+v", again, first)
	}
	accepted("bob")
}
