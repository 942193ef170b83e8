package lua_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/lua"
)

const (
	weighedOrders = 100_000
	// mostSlot and mostEvent are what an order may take of Redis' memory, in bytes: its slot until it ends, its event
	// until a worker has persisted it. They are measured on Redis 7.0 with a user id of 36 characters, and a fifth is
	// added for other versions and for how full a hash table happens to be.
	mostSlot  = 300
	mostEvent = 180
)

// What an order takes of Redis' memory stays within bounds, as docs/benchmarks.md states it.
func TestBytesPerOrder(t *testing.T) {
	t.Parallel()
	// Valkey frees in the background by default.
	server := testkit.PrivateRedis(t, "lazyfree-lazy-user-del no", "lazyfree-lazy-user-flush no")
	f := fixtureOn(t, testkit.Client(t, server.URL()), "weighed")
	for _, keys := range []bool{false, true} {
		f.do("FLUSHALL")
		f.trust()
		f.load(f.openSale(weighedOrders))
		before := f.usedMemory()
		const batch = 100
		for n := 0; n < weighedOrders; n += batch {
			reqs := make([]lua.AdmitRequest, batch)
			for i := range reqs {
				reqs[i] = weighedRequest(n+i, keys)
			}
			for _, o := range f.mustAdmit(reqs...).Outcomes {
				if o.Code != lua.AdmitAccepted {
					t.Fatalf("got %s, want accepted", o.Code)
				}
			}
		}
		both := f.usedMemory() - before
		f.do("DEL", f.saleKeys.Orders)
		slot := float64(f.usedMemory()-before) / weighedOrders
		event := float64(both)/weighedOrders - slot
		t.Logf("idempotency keys %t: %.0f bytes for a slot, %.0f for an event", keys, slot, event)
		if slot > mostSlot || event > mostEvent || slot < 50 || event < 50 {
			t.Errorf("keys %t: %.0f bytes for a slot, want at most %d; %.0f for an event, want at most %d", keys, slot,
				mostSlot, event, mostEvent)
		}
	}
}

func weighedRequest(n int, key bool) lua.AdmitRequest {
	r := lua.AdmitRequest{
		OrderID: fmt.Sprintf("0191d7c6-0000-7000-8000-%012d", n), Number: 1<<60 + int64(n),
		UserID: fmt.Sprintf("5f0c1bd8-e6a9-4c27-9f10-%012d", n), Quantity: 1,
	}
	if key {
		r.KeyHash, r.PayloadHash = fmt.Sprintf("%024x", n), "a1b2c3d4e5f60718a1b2c3d4"
	}
	return r
}

func (f *fixture) usedMemory() int64 {
	f.Helper()
	for line := range strings.Lines(f.rdb.Info(f.ctx, "memory").Val()) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				f.Fatal(err)
			}
			return n
		}
	}
	f.Fatal("Redis does not say what it uses")
	return 0
}
