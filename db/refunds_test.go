package db_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// late is a payment that is due for refund: its order had expired when it came.
func (f *fixture) late(sale *pipeline.Sale, e pipeline.Event) payments.Payment {
	f.Helper()
	f.persist(e)
	f.exec(`update orders set pay_by = now() - interval '1 second' where id = $1::text::uuid`, e.OrderID)
	if _, err := f.store.ExpireOrders(f.ctx(), 10); err != nil {
		f.Fatal(err)
	}
	got := f.pay(payment(e, 1), sale, unknown)
	f.wantPayment(got, payments.RefundDue, payments.ReasonOrderEnded, pipeline.StatusRefundDue)
	return got.Payment
}

func (f *fixture) refund(r payments.Refund) payments.RefundRecord {
	f.Helper()
	if r.Actor == "" {
		r.Actor = "ann@shop"
	}
	record, err := f.store.RecordRefund(f.ctx(), r)
	if err != nil {
		f.Fatalf("record refund %s: %v", r.RefundID, err)
	}
	return record
}

func (f *fixture) wantRefund(got payments.RefundRecord, outcome payments.Outcome, reason payments.Reason) {
	f.Helper()
	if r := got.Refund; r.Outcome != outcome || r.Reason != reason {
		f.Errorf("got %s, %q (%s); want %s, %q", r.Outcome, r.Reason, r.Detail, outcome, reason)
	}
}

// all is everything that a refund may change.
func (f *fixture) all() string {
	f.Helper()
	return f.state() + f.payments() + one[string](f,
		`select coalesce(string_agg(r::text, E'\n' order by id), '') from refunds r`)
}

// A refund is due until all that was paid is back, and is then done: once, with who, when and the provider's reference.
func TestARefundIsDone(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	e := event("drop", "ann", 2, 1)
	due := f.late(sale, e)
	refund := payments.Refund{WebhookID: "msg_r1", RefundID: "re_1", PaymentID: due.PaymentID, Amount: 3998, Currency: "EUR"}
	got := f.refund(refund)
	f.wantRefund(got, payments.Refunded, "")
	if p := got.Payment; p.Outcome != payments.Refunded || p.RefundedAmount != 3998 || p.RefundedAt.IsZero() {
		t.Errorf("the payment: %+v", p)
	}
	if !got.Changed || got.Order.Status != pipeline.StatusRefunded || f.status(e) != pipeline.StatusRefunded {
		t.Errorf("the order: %+v", got.Order)
	}
	log := one[string](f, `select actor || ' ' || sale_id || ' ' || detail::text from audit_log where action = 'refund'`)
	for _, part := range []string{"ann@shop drop ", `"refund_id": "re_1"`, due.PaymentID, e.OrderID, "3998"} {
		if !strings.Contains(log, part) {
			t.Errorf("the audit log does not say %s: %s", part, log)
		}
	}
	before := f.all()
	again := f.refund(refund)
	if !again.Replayed || again.Changed || again.Refund != got.Refund {
		t.Errorf("the same webhook again: %+v", again)
	}
	refund.WebhookID = "msg_r2"
	if again = f.refund(refund); again.Changed || again.Refund.Outcome != payments.Repeated {
		t.Errorf("the same refund in another message: %+v", again)
	}
	byHand := f.refund(payments.Refund{RefundID: "re_1", Payment: due.ID})
	if byHand.Refund.Outcome != payments.Repeated || f.all() != before {
		t.Errorf("the same refund by hand: %+v, or something changed", byHand)
	}
	f.wantRefund(f.refund(payments.Refund{RefundID: "re_1", Payment: due.ID, Amount: 1, Currency: "EUR"}),
		payments.Refused, payments.ReasonRefundReused)
	f.wantRefund(f.refund(payments.Refund{RefundID: "re_2", Payment: due.ID}),
		payments.Refused, payments.ReasonAlreadyRefunded)
	if f.status(e) != pipeline.StatusRefunded {
		t.Error("a refused refund changed the order")
	}
}

// A refund of less than was paid is refused, unless it says that it is partial; then the rest remains due.
func TestAPartialRefundIsNeverSilent(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	e := event("drop", "ann", 1, 1)
	due := f.late(sale, e)
	try := func(id string, amount int64, currency string, partial bool) payments.RefundRecord {
		t.Helper()
		return f.refund(payments.Refund{
			RefundID: id, Payment: due.ID, Amount: amount, Currency: currency, Partial: partial,
		})
	}
	less := try("re_1", 500, "EUR", false)
	f.wantRefund(less, payments.Refused, payments.ReasonAmountMismatch)
	if want := "19.99 EUR of payment"; !strings.Contains(less.Refund.Detail, want) ||
		!strings.Contains(less.Refund.Detail, "5.00 EUR") || !strings.Contains(less.Refund.Detail, "partial") {
		t.Errorf("got %q, want it to say %q and what to do", less.Refund.Detail, want)
	}
	f.wantRefund(try("re_1", 2000, "EUR", true), payments.Refused, payments.ReasonAmountMismatch)
	f.wantRefund(try("re_1", 1999, "USD", false), payments.Refused, payments.ReasonAmountMismatch)
	if less.Payment.RefundedAmount != 0 || f.status(e) != pipeline.StatusRefundDue {
		t.Fatalf("what was refused changed something: %+v", less.Payment)
	}
	part := try("re_1", 500, "EUR", true)
	f.wantRefund(part, payments.PartiallyRefunded, "")
	if p := part.Payment; p.Outcome != payments.RefundDue || p.RefundedAmount != 500 || part.Changed {
		t.Errorf("partly: %+v, changed %t", p, part.Changed)
	}
	if due, err := f.store.Payments(f.ctx(), payments.Filter{Outcome: payments.RefundDue}); err != nil || len(due) != 1 ||
		due[0].RefundedAmount != 500 {
		t.Errorf("what is due: %+v, %v", due, err)
	}
	f.wantRefund(try("re_2", 1999, "EUR", false), payments.Refused, payments.ReasonAmountMismatch)
	rest := f.refund(payments.Refund{RefundID: "re_2", Payment: due.ID}) // all that is left
	f.wantRefund(rest, payments.Refunded, "")
	if rest.Refund.Amount != 1499 || rest.Payment.RefundedAmount != 1999 || f.status(e) != pipeline.StatusRefunded {
		t.Errorf("the rest: %+v", rest)
	}
}

// What fits no payment that is due is recorded, and changes nothing.
func TestRefundsThatFitNothing(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	e := event("drop", "ann", 1, 1)
	f.persist(e)
	paid := f.pay(payment(e, 1), sale, unknown).Payment
	f.wantRefund(f.refund(payments.Refund{RefundID: "re_1", PaymentID: "pay_nobody"}),
		payments.Refused, payments.ReasonUnknownPayment)
	f.wantRefund(f.refund(payments.Refund{RefundID: "re_1", PaymentID: paid.PaymentID}),
		payments.Refused, payments.ReasonNoRefundDue)
	if f.status(e) != pipeline.StatusPaid {
		t.Error("a refused refund changed the order")
	}
	early := event("drop", "bob", 1, 2)
	f.wantPayment(f.pay(payment(early, 1), sale, later), payments.Waiting, "", pipeline.StatusQueued)
	_, err := f.store.RecordRefund(f.ctx(), payments.Refund{
		RefundID: "re_1", PaymentID: payment(early, 1).PaymentID, Actor: payments.WebhookActor,
	})
	wantKind(t, err, pipeline.KindUnavailable)
	if got := one[int](f, `select count(*) from refunds`); got != 2 {
		t.Errorf("%d refunds are recorded, want the 2 refused ones", got)
	}
}

// Two payments of one order are paid back at the same time, each reported by several at once: each counts once, and the
// order is refunded once both are.
func TestRefundsRace(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	e := event("drop", "ann", 1, 1)
	due := []payments.Payment{f.late(sale, e), f.pay(payment(e, 2), sale, unknown).Payment}
	var racers sync.WaitGroup
	for i := range 8 {
		racers.Go(func() {
			_, err := f.store.RecordRefund(t.Context(), payments.Refund{
				WebhookID: fmt.Sprint("msg_", i), RefundID: fmt.Sprint("re_", i%2), Payment: due[i%2].ID,
				Amount: 1999, Currency: "EUR", Actor: payments.WebhookActor,
			})
			if err != nil {
				t.Errorf("refund %d: %v", i, err)
			}
		})
	}
	racers.Wait()
	if got := one[string](f, `select count(*) || ' ' || sum(refunded_amount) from payments where outcome = 'refunded'`); got != "2 3998" {
		t.Errorf("refunded: %s, want 2 payments of 3998 in all", got)
	}
	if got := one[int](f, `select count(*) from refunds`); got != 2 || f.status(e) != pipeline.StatusRefunded {
		t.Errorf("%d refunds, the order is %s", got, f.status(e))
	}
}

// Money is an event of its own: what is received, what is to be paid back, a double payment too, and what was.
func TestMoneyIsAnEvent(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	f.endpoint()
	e := event("drop", "ann", 1, 1)
	f.persist(e)
	first := f.pay(payment(e, 1), sale, unknown).Payment
	f.pay(payment(e, 1), sale, unknown) // the same webhook again
	double := f.pay(payment(e, 2), sale, unknown).Payment
	if double.Outcome != payments.RefundDue || double.Reason != payments.ReasonAlreadyPaid {
		t.Fatalf("a second payment: %+v", double)
	}
	f.refund(payments.Refund{RefundID: "re_1", Payment: double.ID, Amount: 5, Currency: "EUR", Partial: true})
	f.refund(payments.Refund{RefundID: "re_2", Payment: double.ID})
	f.refund(payments.Refund{RefundID: "re_2", Payment: double.ID})
	f.refund(payments.Refund{RefundID: "re_3", Payment: first.ID}) // refused
	f.sequence()
	wantEvents(t, f.eventsAfter(0),
		"order.awaiting_payment "+e.OrderID, "order.paid "+e.OrderID,
		"payment.received "+e.OrderID, "payment.refund_due "+e.OrderID,
		"payment.partially_refunded "+e.OrderID, "payment.refunded "+e.OrderID)
	data := one[string](f, `select data::text from outbox where type = 'payment.refunded'`)
	for _, part := range []string{
		`"payment_id": "` + double.PaymentID + `"`, `"amount": 1999`, `"currency": "EUR"`, `"refunded_amount": 1999`,
		`"user_id": "ann"`, `"outcome": "refunded"`, `"reason": "already-paid"`, `"order_status": "paid"`, `"refunded_at": "`,
	} {
		if !strings.Contains(data, part) {
			t.Errorf("the event does not say %s: %s", part, data)
		}
	}
	if got := one[string](f, `select (data ->> 'amount') || (data ->> 'currency') from outbox where type = 'order.paid'`); got != "1999EUR" {
		t.Errorf("order.paid costs %q", got)
	}
}

// The database itself refuses what no refund may do, whatever program writes.
func TestConstraintsOfRefunds(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	due := f.late(sale, event("drop", "ann", 1, 1))
	for name, change := range map[string]string{
		"payments_refunded_bounds": `refunded_amount = 2000`, "payments_refunded_whole": `outcome = 'refunded', refunded_amount = 5, refunded_at = now()`,
		"payments_refunded_at_set": `refunded_at = now()`,
		"payments_refunded_due":    `outcome = 'paid', reason = '', refunded_amount = 5`,
	} {
		if _, err := f.raw.Exec(f.ctx(), `update payments set `+change+` where id = $1`, due.ID); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// An operator who notes again that an order is paid means the money that is there: no refund comes of it, unless it is
// said to be other money.
func TestAnOperatorInventsNoRefund(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	e := event("drop", "ann", 1, 1)
	f.persist(e)
	f.pay(payment(e, 1), sale, unknown)
	byHand := payments.Payment{
		PaymentID: "manual-" + e.OrderID, SaleID: "drop", OrderID: e.OrderID, Actor: "ann@shop",
	}
	before := f.all()
	for range 2 {
		got := f.pay(byHand, sale, unknown)
		if got.Payment.Outcome != payments.Unneeded || got.Payment.OrderStatus != pipeline.StatusPaid || got.Changed {
			t.Errorf("got %+v, want it unneeded", got)
		}
	}
	if f.all() != before {
		t.Error("something was recorded")
	}
	byHand.PaymentID, byHand.Second = "pay_other", true
	f.wantPayment(f.pay(byHand, sale, unknown), payments.RefundDue, payments.ReasonAlreadyPaid, pipeline.StatusPaid)

	waits := event("drop", "bob", 1, 2)
	early := payments.Payment{PaymentID: "manual-bob", SaleID: "drop", OrderID: waits.OrderID, Actor: "ann@shop"}
	early = f.pay(early, sale, later).Payment
	f.persist(waits)
	f.pay(payment(waits, 1), sale, unknown)
	decided, err := f.store.DecideWaitingPayment(f.ctx(), early.ID, sale, unknown)
	if err != nil || decided.Payment.Outcome != payments.Repeated {
		t.Errorf("noted before the order was stored: %+v, %v, want it repeated", decided.Payment, err)
	}
}
