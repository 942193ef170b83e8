package db_test

import (
	"sync"
	"testing"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// A payment that waits is decided once, however many calls try, and is the same money until then.
func TestWaitingPayment(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	order, never := event("drop", "ann", 1, 1), event("drop", "bob", 1, 2)
	first := f.pay(payment(order, 1), sale, later)
	f.wantPayment(first, payments.Waiting, "", pipeline.StatusQueued)
	f.wantPayment(f.pay(payment(order, 2), sale, later), payments.Waiting, "", pipeline.StatusQueued)
	f.pay(payment(never, 1), sale, later)
	again := payment(order, 1)
	again.WebhookID = "msg_again"
	f.wantPayment(f.pay(again, sale, later), payments.Repeated, "", pipeline.StatusQueued)
	if nothing := f.pay(payment(event("drop", "cy", 1, 3), 1), sale, payments.Decision{}); nothing.Payment.Outcome != "" {
		t.Errorf("undecided: got %+v", nothing)
	}

	waiting := func() []payments.WaitingPayment {
		t.Helper()
		list, err := f.store.WaitingPayments(f.ctx(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	decide := func(id int64, absent payments.Decision) payments.Record {
		t.Helper()
		record, err := f.store.DecideWaitingPayment(f.ctx(), id, sale, absent)
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	list := waiting()
	if len(list) != 3 || list[0].Stored || list[0].SaleID != "drop" || list[0].ReceivedAt.IsZero() {
		t.Fatalf("waiting: got %+v", list)
	}
	if got := decide(list[0].ID, payments.Decision{}); got.Payment.Outcome != "" || len(waiting()) != 3 {
		t.Errorf("too early: got %+v", got)
	}
	f.persist(order)
	if list = waiting(); !list[0].Stored || !list[1].Stored || list[2].Stored {
		t.Fatalf("stored: got %+v", list)
	}
	var mu sync.Mutex // protects changed
	changed := 0
	var all sync.WaitGroup
	for range 4 {
		for _, w := range list {
			all.Go(func() {
				record, err := f.store.DecideWaitingPayment(t.Context(), w.ID, sale, unknown)
				if err != nil {
					t.Errorf("decide: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if record.Changed {
					changed++
				}
			})
		}
	}
	all.Wait()
	if changed != 1 || f.status(order) != pipeline.StatusPaid || len(waiting()) != 0 {
		t.Errorf("the order was changed %d times, is %s, and %d wait", changed, f.status(order), len(waiting()))
	}
	if got := one[string](f,
		`select string_agg(outcome || ' ' || reason || ' ' || order_status, ', ' order by id) from payments where outcome <> 'repeated'`); got !=
		"paid  paid, refund_due already-paid paid, refused unknown-order " &&
		got != "refund_due already-paid paid, paid  paid, refused unknown-order " {
		t.Errorf("got %q", got)
	}
	replayed := f.pay(payment(order, 1), sale, unknown)
	if !replayed.Replayed || replayed.Payment.Outcome == payments.Waiting {
		t.Errorf("the webhook again: got %+v, want its outcome", replayed)
	}
}
