package db_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"sluice/pipeline"
)

// TestPaymentRaces: for many orders at once two payments, each reported twice, a cancellation and the expiry meet.
// Exactly one of paid, cancelled and expired wins; units go back once where it was not the payment; and no money is
// lost: it has paid its order, or is to be paid back, and counts once.
func TestPaymentRaces(t *testing.T) {
	f := setup(t)
	const n = 120
	sale := f.priced("drop", n)
	batch := events("drop", n)
	f.persist(batch...)
	f.overdue()
	var mu sync.Mutex // protects wins
	wins := map[string]int{}
	win := func(orderID, how string) {
		mu.Lock()
		defer mu.Unlock()
		wins[orderID+" "+how]++
	}
	var calls []func()
	for _, e := range batch {
		for money := range 2 {
			for range 2 {
				calls = append(calls, func() {
					record, err := f.store.RecordPayment(t.Context(), payment(e, money), sale, unknown)
					if err != nil {
						t.Errorf("pay: %v", err)
					} else if record.Changed && record.Order.Status == pipeline.StatusPaid {
						win(e.OrderID, "paid")
					}
				})
			}
		}
		calls = append(calls, func() {
			if _, changed, err := f.store.CancelOrder(t.Context(), "drop", e.OrderID, e.UserID); err != nil {
				t.Errorf("cancel: %v", err)
			} else if changed {
				win(e.OrderID, "cancelled")
			}
		})
	}
	for range n {
		calls = append(calls, func() {
			expired, err := f.store.ExpireOrders(t.Context(), 1)
			if err != nil {
				t.Errorf("expire: %v", err)
			}
			for _, o := range expired {
				win(o.ID, "expired")
			}
		})
	}
	rand.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	work := make(chan func())
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			for call := range work {
				call()
			}
		})
	}
	for _, call := range calls {
		work <- call
	}
	close(work)
	racers.Wait()
	f.checkRaces(batch, wins)
}

func (f *fixture) checkRaces(batch []pipeline.Event, wins map[string]int) {
	f.Helper()
	paid := int64(0)
	for _, e := range batch {
		won := map[string]int{}
		for _, how := range []string{"paid", "cancelled", "expired"} {
			if n := wins[e.OrderID+" "+how]; n > 0 {
				won[how] = n
			}
		}
		status := f.status(e)
		want := pipeline.StatusRefundDue // both payments came, so an order that ended owes money
		if won["paid"] == 1 {
			want = pipeline.StatusPaid
			paid++
		}
		if len(won) != 1 || status != want {
			f.Errorf("order %s: won by %v, and is %s; want one winner and %s", e.OrderID, won, status, want)
		}
		owed := one[int64](f, `select count(*) from releases where order_id = $1::text::uuid`, e.OrderID)
		if (owed == 1) == (status == pipeline.StatusPaid) || owed > 1 {
			f.Errorf("order %s is %s, and its units go back %d times", e.OrderID, status, owed)
		}
		moneys := one[string](f,
			`select string_agg(outcome, ' ' order by outcome) from payments where order_id = $1::text::uuid`, e.OrderID)
		if wantMoneys := map[bool]string{
			true:  "paid refund_due",
			false: "refund_due refund_due",
		}[status == pipeline.StatusPaid]; moneys != wantMoneys {
			f.Errorf("order %s is %s, its money %q, want %q", e.OrderID, status, moneys, wantMoneys)
		}
	}
	f.Logf("%d of %d orders were paid", paid, len(batch))
	if got, want := f.books("drop"), (books{paid, paid, int64(len(batch))}); got != want {
		f.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSameMoneyAtOnce: many tellers of one payment, under one webhook id and under many, pay one order once.
func TestSameMoneyAtOnce(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 10)
	for round := range 10 {
		order := event("drop", fmt.Sprint("buyer-", round), 1, int64(round+1))
		f.persist(order)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				p := payment(order, 1)
				p.WebhookID = fmt.Sprintf("msg_%d_%d", round, i%3)
				if i >= 6 { // a sender that gives one id to two messages
					p.PaymentID += "_other"
				}
				if _, err := f.store.RecordPayment(t.Context(), p, sale, unknown); err != nil {
					t.Errorf("pay: %v", err)
				}
			})
		}
		all.Wait()
		got := one[string](f,
			`select count(*) || ' ' || count(*) filter (where outcome = 'paid') || ' ' || count(distinct webhook_id) from payments where order_id = $1::text::uuid`, order.OrderID)
		if got != "3 1 3" {
			t.Errorf("records, paid, webhooks: got %s, want 3 1 3", got)
		}
	}
}
