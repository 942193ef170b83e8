package db_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/journal"
)

func keyOf(e pipeline.Event) pipeline.OrderKey {
	return pipeline.OrderKey{SaleID: e.SaleID, OrderID: e.OrderID}
}

// A row in any status settles an order, and so do a letter alone and a leave; nothing else does.
func TestUnsettledOrders(t *testing.T) {
	f := setup(t)
	f.waitlistSale()
	f.sale("drop-2", 10)
	batch := events("drop-2", 4)
	f.persist(batch[:2]...)
	f.cancel(batch[1])
	letter, left := event("drop-2", "letter", 1, 5), waitlistEntry("leaves", 1)
	f.bury(deadletter.Message{
		EntryID: "1700000000000-9", SaleID: "drop-2", OrderID: letter.OrderID, Reason: "refused",
		Payload: map[string]any{"s": "drop-2"}, Error: "why", Deliveries: 1,
	})
	f.joined(left)
	f.left(left, 2)
	waits := f.joined(waitlistEntry("waits", 3))
	want := []pipeline.OrderKey{
		keyOf(batch[2]),
		keyOf(batch[3]),
		{SaleID: waits.SaleID, OrderID: waits.OrderID},
		{SaleID: "drop-1", OrderID: batch[0].OrderID}, // another sale's
	}
	got, err := f.store.UnsettledOrders(f.ctx(), append([]pipeline.OrderKey{
		keyOf(batch[0]),
		keyOf(batch[1]),
		keyOf(letter),
		{SaleID: left.SaleID, OrderID: left.OrderID},
		{SaleID: "drop-2", OrderID: "no uuid"},
	}, want...))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// report reports orders, and wants Postgres to have so many reports then, with so many orders of the sale.
func (f *fixture) report(o journal.Overdue, reports, orders int) {
	f.Helper()
	if err := f.store.ReportOverdue(f.ctx(), o); err != nil {
		f.Fatal(err)
	}
	f.reports(reports, orders)
}

func (f *fixture) reports(reports, orders int) {
	f.Helper()
	witnesses, err := f.store.Witnesses(f.ctx(), "drop-1")
	if err != nil {
		f.Fatal(err)
	}
	got := 0
	for _, w := range witnesses {
		got += len(w.Orders)
	}
	if len(witnesses) != reports || got != orders {
		f.Fatalf("got %+v, want %d reports of %d orders", witnesses, reports, orders)
	}
}

// A report takes the place of the one before it. One of a journal that is not known changes nothing; once a journal is
// forgotten for its silence, its report remains until all of it is settled.
func TestJournalReports(t *testing.T) {
	f := setup(t)
	f.sale("drop-1", 10)
	batch := events("drop-1", 3)
	own, other := uuid.NewString(), uuid.NewString()
	orders := []pipeline.OrderKey{keyOf(batch[0]), keyOf(batch[1]), {SaleID: "drop-2", OrderID: uuid.NewString()}}
	f.report(journal.Overdue{JournalID: own, Host: "a", Orders: orders}, 0, 0)
	f.touch(own)
	f.report(journal.Overdue{JournalID: own, Host: "a", Orders: append(orders, orders[0])}, 1, 2)
	f.report(journal.Overdue{JournalID: own, Host: "a", Orders: []pipeline.OrderKey{keyOf(batch[2])}, Unlisted: 4}, 1, 1)
	f.report(journal.Overdue{JournalID: own}, 0, 0)

	f.report(journal.Overdue{JournalID: own, Host: "a", Orders: orders[:2]}, 1, 2)
	f.exec(`update accept_journals set seen_at = now() - interval '25 hours'`)
	f.touch(other)
	f.reports(1, 2)
	f.touch(own)
	f.persist(batch...)
	f.exec(`update accept_journals set seen_at = now() - interval '25 hours'`)
	f.touch(other)
	f.reports(0, 0)

	f.touch(own)
	f.report(journal.Overdue{JournalID: own, Host: "a", Orders: orders[:1]}, 1, 1)
	if err := f.store.ForgetJournals(f.ctx(), []string{own}); err != nil {
		t.Fatal(err)
	}
	f.reports(0, 0)
}

func (f *fixture) touch(id string) {
	f.Helper()
	if err := f.store.TouchJournals(f.ctx(), []string{id}, "a"); err != nil {
		f.Fatal(err)
	}
}
