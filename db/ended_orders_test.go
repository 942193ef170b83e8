package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// The key of an order is stored with it, and found again once the order has ended: paid, unpaid or rejected, and none
// of those that live or had no key.
func TestEndedOrdersAreFoundByBuyer(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	order := func(user, key string, sequence int64) pipeline.Event {
		e := event("drop", user, 1, sequence)
		e.KeyHash, e.AcceptedAt = key, e.AcceptedAt.Add(time.Duration(sequence)*time.Second)
		f.persist(e)
		return e
	}
	end := func(e pipeline.Event) pipeline.Event {
		f.exec(`update orders set status = 'cancelled', closed_at = now() where id = $1`, e.OrderID)
		f.exec(`update sales set sold = sold - 1`)
		return e
	}
	first := end(order("bob", "k1", 1))
	second := end(order("bob", "k2", 2))
	order("bob", "k3", 3) // lives
	end(order("cy", "", 4))
	rejected := event("drop", "ann", 1, 5)
	rejected.KeyHash = "k4"
	letter := deadletter.Message{Partition: rejected.Partition, EntryID: "1-1", SaleID: "drop", Reason: "buyer-conflict"}
	if err := f.store.BuryEvent(f.ctx(), letter, &rejected); err != nil {
		t.Fatal(err)
	}
	elsewhere := order("dan", "k5", 6)
	f.exec(`update orders set partition = 9, status = 'expired', closed_at = now() where id = $1`, elsewhere.OrderID)

	var got []string
	err := f.store.EachEndedOrder(f.ctx(), "drop", first.Partition, func(o pipeline.LedgerOrder) error {
		got = append(got, fmt.Sprint(o.UserID, " ", o.OrderID, " ", o.KeyHash, " ", o.Number, " ", o.Sequence))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range []pipeline.Event{rejected, second, first} {
		want = append(want, fmt.Sprint(e.UserID, " ", e.OrderID, " ", e.KeyHash, " ", e.Number, " ", e.Sequence))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
