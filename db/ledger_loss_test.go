package db_test

import (
	"errors"
	"testing"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/recovery"
)

// identity names the server, as it does itself.
func (f *fixture) identity() string {
	f.Helper()
	name, err := f.store.ServerIdentity(f.ctx())
	ok(f.T, err)
	return name
}

// On a server that was not examined nothing is stored and nothing expires, but what is stored again; nobody ever having
// looked holds nothing up.
func TestAnUnexaminedServerStoresNothing(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	f.persist(event("drop", "ann", 1, 1))
	ok(t, f.store.RecordExamined(f.ctx(), f.identity()))
	f.persist(event("drop", "bob", 1, 2))
	if err := f.store.RecordExamined(f.ctx(), "another"); !errors.Is(err, installation.ErrUnexamined) {
		t.Errorf("another server's name: got %v, want it refused", err)
	}
	f.exec(`update orders set pay_by = now() - interval '1 hour' where user_id = 'ann' and status = 'awaiting_payment'`)
	f.exec(`update examined_server set identity = 'the one before'`)
	before, third := f.state(), event("drop", "cy", 1, 3)
	if _, err := f.store.PersistOrders(f.ctx(), 1, []pipeline.Event{third}); !errors.Is(err, installation.ErrUnexamined) {
		t.Errorf("an order: got %v, want it to wait", err)
	}
	if err := f.store.Rehearse(f.ctx()); !errors.Is(err, installation.ErrUnexamined) {
		t.Errorf("a rehearsal: got %v, want it to say so", err)
	}
	if expired, err := f.store.ExpireOrders(f.ctx(), 10); err != nil || len(expired) > 0 {
		t.Errorf("%d orders expired, %v; want none", len(expired), err)
	}
	if f.state() != before {
		t.Error("something was written")
	}
	outcomes, err := f.store.PersistHome(f.ctx(), 1, []pipeline.Event{third})
	if err != nil || outcomes[0] != inserted {
		t.Errorf("stored again: got %v, %v", outcomes, err)
	}
	ok(t, f.store.RecordExamined(f.ctx(), f.identity()))
	f.persist(event("drop", "dan", 1, 4))
	if expired, err := f.store.ExpireOrders(f.ctx(), 10); err != nil || len(expired) != 1 {
		t.Errorf("%d orders expired, %v; want the one that is due", len(expired), err)
	}
}

// The marks count rows in the order of commits, and an order that is there again has the present one.
func TestMarksCountRows(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	at := pipeline.SalePartition{SaleID: "drop", Partition: 3}
	batch := events("drop", 6)
	for i, step := range []struct {
		events []pipeline.Event
		want   int64
	}{{batch[3:], 3}, {batch[:2], 5}, {batch[4:], 5}, {batch[1:], 6}} {
		outcomes, marks, err := f.store.PersistMarked(f.ctx(), 1, step.events)
		if err != nil || len(marks) != 1 || marks[at] != step.want {
			t.Errorf("batch %d: got marks %v, %v (%v); want %d", i, marks, err, outcomes, step.want)
		}
	}
	marks, err := f.store.LedgerMarks(f.ctx())
	want := recovery.LedgerMark{SalePartition: at, Stored: 6}
	for _, m := range marks {
		if m.Partition == at.Partition && m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
	}
	if err != nil || len(marks) == 0 {
		t.Errorf("got %v, %v", marks, err)
	}
}

// An end that was forgotten is written once: sold units, the release, the money; and nothing of an older generation.
func TestEndForgotten(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	batch := events("drop", 3)
	f.persist(batch...)
	f.pay(payment(batch[0], 1), sale, unknown)
	ids := []string{batch[0].OrderID, batch[1].OrderID}
	if _, err := f.store.EndForgotten(f.ctx(), 7, "drop", ids); !errors.Is(err, pipeline.ErrStaleGeneration) {
		t.Errorf("got %v, want it stale", err)
	}
	for i, want := range []int64{2, 0} {
		n, err := f.store.EndForgotten(f.ctx(), 1, "drop", ids)
		if err != nil || n != want {
			t.Errorf("run %d: got %d, %v; want %d", i, n, err, want)
		}
	}
	for query, want := range map[string]int{
		`select count(*) from orders where status = 'returned' and id = '` + ids[0] + `'`:  1,
		`select count(*) from orders where status = 'cancelled' and id = '` + ids[1] + `'`: 1,
		`select count(*) from releases where applied_at is not null and given_back`:        2,
		`select count(*) from payments where outcome = 'refund_due'`:                       1,
		`select sold::int from sales where id = 'drop'`:                                    1,
		`select released::int from watermarks where sale_id = 'drop' and partition = 3`:    2,
	} {
		if got := one[int](f, query); got != want {
			t.Errorf("%s: got %d, want %d", query, got, want)
		}
	}
}

// A loss is recorded once, as it was found first; what was done since is counted, and nothing older.
func TestALossIsBegunOnce(t *testing.T) {
	f := setup(t)
	f.sale("drop", 10)
	at := pipeline.SalePartition{SaleID: "drop", Partition: 3}
	batch := events("drop", 5)
	f.persist(batch[:2]...)
	behind := []recovery.SaleLoss{{SaleID: "drop", Partition: 3, Settled: 5, Stored: 2}}
	var first recovery.BegunLoss
	for i, found := range [][]recovery.SaleLoss{behind, {}} {
		begun, err := f.store.BeginLedgerLoss(f.ctx(), found)
		if err != nil || len(begun.Behind) != 1 || begun.Behind[0] != behind[0] || begun.FoundAt.IsZero() {
			t.Fatalf("try %d: got %+v, %v", i, begun, err)
		}
		if i == 0 {
			first = begun
		} else if !begun.FoundAt.Equal(first.FoundAt) {
			t.Errorf("found at %v, then at %v", first.FoundAt, begun.FoundAt)
		}
	}
	if _, err := f.store.PersistHome(f.ctx(), 1, batch[2:]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.EndForgotten(f.ctx(), 1, "drop", []string{batch[0].OrderID}); err != nil {
		t.Fatal(err)
	}
	f.exec(`insert into dead_letters (partition, entry_id, sale_id, payload, reason, error, deliveries) values
		(3, 'ledger:x', 'drop', '{}', 'lost', '-', 1), (3, '1-1', 'drop', '{}', 'lost', '-', 1)`)
	got, err := f.store.CountHome(f.ctx(), at, first.FoundAt)
	if want := (recovery.HomeCount{Restored: 3, Ended: 1, Refused: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	got, err = f.store.CountHome(f.ctx(), at, time.Now().Add(time.Hour))
	if err != nil || got != (recovery.HomeCount{}) {
		t.Errorf("of a later loss: got %+v, %v", got, err)
	}
}

// An hour is given to those that have less, and no more than the sale gives, once.
func TestSpare(t *testing.T) {
	f := setup(t)
	f.sale("drop", 100)
	f.persist(events("drop", 3)...)
	f.exec(`update sales set payment_window = interval '10 minutes'`)
	f.exec(`update orders set status = 'awaiting_payment', pay_by = now() - interval '1 hour'`)
	at := pipeline.SalePartition{SaleID: "drop", Partition: 3}
	from, err := f.store.Clock(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	spared := int64(0)
	for range 2 { // the second time there is nothing to do
		after := ""
		for _, want := range []int64{2, 1, 0} {
			last, n, err := f.store.Spare(f.ctx(), at, recovery.Spared{From: from, AtLeast: time.Hour}, after, 2)
			if err != nil || (last == "") != (want == 0) {
				t.Errorf("after %q: got %q, %d, %v; want a page of %d", after, last, n, err, want)
			}
			spared, after = spared+n, last
		}
	}
	if spared != 3 {
		t.Errorf("time was given %d times, want 3", spared)
	}
	if n := one[int](f, `select count(*) from orders where pay_by between now() + interval '9 minutes'
		and now() + interval '10 minutes'`); n != 3 {
		t.Errorf("%d orders have ten minutes, want 3", n)
	}
}
