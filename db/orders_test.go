package db_test

import (
	"testing"

	"sluice/pipeline"
)

func TestOrderNotFound(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.sale("other", 10)
	e := event("drop", "u", 1, 1)
	f.persist(e)
	for _, try := range [][2]string{
		{"drop", "0191d7c6-0000-7000-8000-000000000000"},
		{"other", e.OrderID},
		{"none", e.OrderID},
		{"drop", ""},
		{"drop", "x"},
		{"drop", e.OrderID + "\x00"},
		{"", e.OrderID},
		{"a\x00b", e.OrderID},
	} {
		_, err := f.store.Order(f.ctx(), try[0], try[1])
		wantKind(t, err, pipeline.KindNotFound)
	}
	for _, try := range [][2]string{
		{"drop", "v"}, {"other", "u"}, {"drop", ""}, {"drop", "u\x00"}, {"drop", "\xff"}, {"x y", "u"},
	} {
		_, err := f.store.LatestOrder(f.ctx(), try[0], try[1])
		wantKind(t, err, pipeline.KindNotFound)
	}
}

// The live order wins, whenever it was accepted; else the closed one that was accepted last.
func TestLatestOrder(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.exec(`alter table orders disable trigger user`) // it refuses most of what follows
	var last pipeline.Event
	for sequence := range int64(4) {
		last = event("drop", "ü'\"", 1, sequence+1)
		f.persist(last)
		got, err := f.store.LatestOrder(f.ctx(), "drop", "ü'\"")
		if err != nil || got.ID != last.OrderID || got.Status != pipeline.StatusAwaitingPayment {
			t.Fatalf("live order: got %+v, %v, want %s", got, err, last.OrderID)
		}
		ends := []string{"cancelled", "expired", "rejected", "refund_due"}
		f.exec(`
			update orders set closed_at = now(), reason = 'late', status = $2
			where sale_id = 'drop' and id = $1`, last.OrderID, ends[sequence])
	}
	got, err := f.store.LatestOrder(f.ctx(), "drop", "ü'\"")
	if err != nil || got.ID != last.OrderID || got.Reason != "late" || got.ClosedAt.IsZero() {
		t.Errorf("closed order: got %+v, %v, want %s", got, err, last.OrderID)
	}
	// An old order that is live again, as after a payment that came late and was accepted by hand.
	f.exec(`update orders set status = 'paid', closed_at = null, paid_at = now(), payment_id = 'p' where sequence = 1`)
	got, err = f.store.LatestOrder(f.ctx(), "drop", "ü'\"")
	if err != nil || got.Sequence != 1 || got.PaidAt.IsZero() {
		t.Errorf("the live order among newer closed ones: got %+v, %v, want sequence 1", got, err)
	}
}
