package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/lua"
)

// An idempotency key answers with its order after that has ended, also while the sale is sold out or closed, and beside
// a later order of the same buyer.
func TestAKeyOutlivesItsOrder(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(2))
	first := f.mustAdmit(request(1, "ann")).Outcomes[0]
	f.mustRelease(lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)})
	again := func(n int, key, payload string) lua.AdmitRequest {
		r := request(n, "ann")
		r.KeyHash, r.PayloadHash = key, payload
		return r
	}
	check := func(when string) {
		t.Helper()
		f.unchanged(when, func() {
			got := f.mustAdmit(again(7, "key1", "payload1"), again(8, "key1", "other"), request(1, "ann")).Outcomes
			same(t, when, got, []lua.AdmitOutcome{
				{Code: lua.AdmitEnded, Slot: first.Slot}, {Code: lua.AdmitKeyReused, Slot: first.Slot}, first,
			})
		})
	}
	check("after the release")
	second := f.mustAdmit(request(2, "ann")).Outcomes[0]
	if second.Code != lua.AdmitAccepted {
		t.Fatalf("another key: got %s", second.Code)
	}
	check("beside a second order")
	same(t, "ann joins under the first key", f.join(again(9, "key1", "other")), lua.JoinReply{
		Code: lua.JoinEnded, Slot: first.Slot, OpensMS: sale.OpensMS, MaxQuantity: sale.MaxQuantity,
	})
	got := f.mustAdmit(again(9, "key2", "payload1"), again(9, "key9", "payload1")).Outcomes
	same(t, "the second order's key, and a new one", got, []lua.AdmitOutcome{
		{Code: lua.AdmitReplayed, Slot: second.Slot}, {Code: lua.AdmitAlreadyOrdered, Slot: second.Slot},
	})
	f.mustAdmit(request(3, "bob"))
	f.mustRelease(lua.ReleaseItem{UserID: "ann", OrderID: orderID(2)})
	f.mustAdmit(request(4, "cy")) // sold out now
	check("sold out")
	for key, want := range map[string]lua.Slot{"key1": first.Slot, "key2": second.Slot} {
		if got := f.join(again(9, key, "payload1")); got.Code != lua.JoinEnded || got.Slot != want {
			t.Errorf("ann joins under %s: got %+v, want ended and %+v", key, got, want)
		}
	}
	more := again(9, "key1", "payload1")
	more.Quantity = first.Slot.Quantity + 1
	same(t, "ann joins for more under the key of an order that has ended", f.join(more), lua.JoinReply{
		Code: lua.JoinKeyReused, Slot: first.Slot, OpensMS: sale.OpensMS, MaxQuantity: sale.MaxQuantity,
	})
	third := f.mustAdmit(request(3, "bob")).Outcomes[0].Slot
	more = request(9, "bob")
	more.KeyHash, more.Quantity = third.KeyHash, third.Quantity+1
	same(t, "bob joins for more under the key of his order", f.join(more), lua.JoinReply{
		Code: lua.JoinKeyReused, Slot: third, OpensMS: sale.OpensMS, MaxQuantity: sale.MaxQuantity,
	})
	more.KeyHash = "key9"
	if got := f.join(more); got.Code != lua.JoinAlreadyOrdered || got.Slot != third {
		t.Errorf("bob joins for more under a new key: got %+v, want already-ordered and %+v", got, third)
	}
	sale.State, sale.Version = "closed", 2
	f.mustAdjust(sale)
	check("closed")
}

// What is kept of a buyer is bounded: the latest orders.
func TestAsManyKeysAreKept(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	const orders = lua.MaxEndedSlots + 2
	for n := 1; n <= orders; n++ {
		f.mustAdmit(request(n, "ann"))
		f.mustRelease(lua.ReleaseItem{UserID: "ann", OrderID: orderID(n)})
	}
	for n := 1; n <= orders; n++ {
		r := request(n, "ann")
		r.OrderID = orderID(100 + n)
		want := lua.AdmitEnded
		if n <= orders-lua.MaxEndedSlots {
			want = lua.AdmitAccepted
		}
		got := f.mustAdmit(r).Outcomes[0]
		if got.Code != want {
			t.Errorf("key %d of %d: got %s, want %s", n, orders, got.Code, want)
		}
		if got.Code == lua.AdmitAccepted { // the next key is the oldest again
			f.do("HDEL", f.saleKeys.Buyers, "ann")
		}
	}
}

// An order whose slot is filled a second time, because Redis had lost the release, is kept once.
func TestAnOrderIsKeptOnce(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	for range 2 {
		if _, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(1, "ann")}); err != nil {
			t.Fatal(err)
		}
		f.mustRelease(lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)})
	}
	if got := f.state().Ended["ann"]; strings.Contains(got, ";") || !strings.HasPrefix(got, orderID(1)) {
		t.Errorf("got %q, want one slot of the order", got)
	}
}

// An accept that Redis may have lost is judged by units alone: the caller knows what Postgres has of it.
func TestAResubmissionIsNoReplay(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	f.mustRelease(lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)})
	r := request(1, "ann")
	r.OrderID = orderID(2)
	reply, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{r})
	if err != nil || reply.Outcomes[0].Code != lua.AdmitAccepted || reply.Outcomes[0].Slot.OrderID != orderID(2) {
		t.Errorf("got %+v, %v, want it accepted", reply.Outcomes, err)
	}
}

// Orders without a key leave nothing behind.
func TestOnlyKeysAreKept(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(500))
	var items []lua.ReleaseItem
	var reqs []lua.AdmitRequest
	for n := range 100 {
		r := request(n+1, fmt.Sprint("user-", n))
		r.KeyHash, r.PayloadHash = "", ""
		reqs, items = append(reqs, r), append(items, lua.ReleaseItem{UserID: r.UserID, OrderID: r.OrderID})
	}
	f.mustAdmit(reqs...)
	f.mustRelease(items...)
	if got := f.state().Ended; got != nil {
		t.Errorf("got %v, want nothing", got)
	}
}
