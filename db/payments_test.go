package db_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// priced is a sale whose units cost 19.99 EUR each.
func (f *fixture) priced(id string, total int64) *pipeline.Sale {
	f.Helper()
	sale := newSale(id, total)
	sale.UnitPrice, sale.Currency = 1999, "EUR"
	return f.create(sale)
}

// payment pays an order's price, as a webhook reports it.
func payment(e pipeline.Event, n int) payments.Payment {
	return payments.Payment{
		WebhookID: fmt.Sprintf("msg_%s_%d", e.OrderID, n), PaymentID: fmt.Sprintf("pay_%s_%d", e.OrderID,
			n), SaleID: e.SaleID,
		OrderID: e.OrderID, Amount: 1999 * int64(e.Quantity), Currency: "EUR", Actor: payments.WebhookActor,
	}
}

var (
	unknown = payments.Refusal(payments.ReasonUnknownOrder, "no such order")
	later   = payments.Decision{Outcome: payments.Waiting}
)

func (f *fixture) pay(p payments.Payment, sale *pipeline.Sale, absent payments.Decision) payments.Record {
	f.Helper()
	record, err := f.store.RecordPayment(f.ctx(), p, sale, absent)
	if err != nil {
		f.Fatalf("record payment %s: %v", p.PaymentID, err)
	}
	return record
}

func (f *fixture) wantPayment(
	got payments.Record, outcome payments.Outcome, reason payments.Reason, status pipeline.OrderStatus,
) {
	f.Helper()
	if p := got.Payment; p.Outcome != outcome || p.Reason != reason || p.OrderStatus != status {
		f.Errorf("got %s, %q, order %q; want %s, %q, %q", p.Outcome, p.Reason, p.OrderStatus, outcome, reason, status)
	}
}

// status is an order's, as Postgres has it.
func (f *fixture) status(e pipeline.Event) pipeline.OrderStatus {
	f.Helper()
	return one[pipeline.OrderStatus](f, `select status from orders where id = $1::text::uuid`, e.OrderID)
}

// A payment has one outcome for every status of its order, and only the first money pays.
func TestPaymentOfEveryStatus(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	free := f.freeSale("free", 100)
	for i, test := range []struct {
		from    pipeline.OrderStatus
		outcome payments.Outcome
		reason  payments.Reason
		to      pipeline.OrderStatus
	}{
		{pipeline.StatusAwaitingPayment, payments.Paid, "", pipeline.StatusPaid},
		{pipeline.StatusPaid, payments.RefundDue, payments.ReasonAlreadyPaid, pipeline.StatusPaid},
		{pipeline.StatusCancelled, payments.RefundDue, payments.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusExpired, payments.RefundDue, payments.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusRejected, payments.RefundDue, payments.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusRefundDue, payments.RefundDue, payments.ReasonNothingDue, pipeline.StatusRefundDue},
	} {
		order := event("drop", fmt.Sprint("buyer-", i), 2, int64(i+1))
		f.persist(order)
		f.exec(`alter table orders disable trigger user`)
		number, closed := "number", "now()"
		if test.from == pipeline.StatusRejected {
			number = "null"
		}
		if test.from.Live() {
			closed = "null"
		}
		f.exec(`update orders set status = $2, reason = 'r', paid_at = now(), payment_id = 'other', number = `+number+`,
			closed_at = `+closed+` where sale_id = 'drop' and id = $1::text::uuid`, order.OrderID, test.from)
		f.exec(`alter table orders enable trigger user`)
		sold, owed := f.books("drop").sold, f.owed("drop")
		got := f.pay(payment(order, 1), sale, unknown)
		f.wantPayment(got, test.outcome, test.reason, test.to)
		if f.status(order) != test.to || got.Order.Status != test.to || got.Changed != (test.from != test.to) {
			t.Errorf("%s: the order is %s, returned as %s, changed %t", test.from, f.status(order), got.Order.Status,
				got.Changed)
		}
		if got.Changed && (got.Order.PaidAt.IsZero() || one[string](f,
			`select payment_id from orders where id = $1::text::uuid`, order.OrderID) != got.Payment.PaymentID) {
			t.Errorf("%s: the order does not name its payment: %+v", test.from, got.Order)
		}
		if f.books("drop").sold != sold || f.owed("drop") != owed {
			t.Errorf("%s: a payment moved units", test.from)
		}
		before := f.state() + f.payments()
		again := f.pay(payment(order, 1), sale, unknown)
		if !again.Replayed || again.Changed || again.Payment != got.Payment || f.state()+f.payments() != before {
			t.Errorf("%s: the same webhook again: got %+v, want %+v and no change", test.from, again, got.Payment)
		}
	}
	order := event("free", "ann", 1, 1)
	f.persist(order)
	f.wantPayment(f.pay(payment(order, 1), free, unknown), payments.RefundDue, payments.ReasonNoPaymentDue,
		pipeline.StatusConfirmed)
}

// payments is the whole table.
func (f *fixture) payments() string {
	f.Helper()
	return one[string](f, `select coalesce(string_agg(p::text, E'\n' order by id), '') from payments p`)
}

// What fits no order is recorded, and changes no order.
func TestPaymentsThatFitNothing(t *testing.T) {
	f := setup(t)
	sale, other := f.priced("drop", 100), f.sale("other", 100)
	order := event("drop", "ann", 2, 1)
	f.persist(order)
	before := f.state()
	for i, test := range []struct {
		name   string
		change func(*payments.Payment) *pipeline.Sale
		reason payments.Reason
		status pipeline.OrderStatus
	}{
		{
			"too little", func(p *payments.Payment) *pipeline.Sale { p.Amount--; return sale }, payments.ReasonAmountMismatch,
			"awaiting_payment",
		},
		{
			"the price of one unit", func(p *payments.Payment) *pipeline.Sale { p.Amount = 1999; return sale },
			payments.ReasonAmountMismatch, "awaiting_payment",
		},
		{
			"another currency", func(p *payments.Payment) *pipeline.Sale { p.Currency = "USD"; return sale },
			payments.ReasonAmountMismatch, "awaiting_payment",
		},
		{
			"another buyer", func(p *payments.Payment) *pipeline.Sale { p.UserID = "bob"; return sale },
			payments.ReasonForeignOrder, "",
		},
		{
			"another sale", func(p *payments.Payment) *pipeline.Sale { p.SaleID = "other"; return other },
			payments.ReasonUnknownOrder, "",
		},
		{
			"no such order", func(p *payments.Payment) *pipeline.Sale { p.OrderID = uuid.NewString(); return sale },
			payments.ReasonUnknownOrder, "",
		},
		{"no sale", func(*payments.Payment) *pipeline.Sale { return nil }, payments.ReasonUnknownOrder, ""},
	} {
		p := payment(order, i)
		of := test.change(&p)
		got := f.pay(p, of, unknown)
		f.wantPayment(got, payments.Refused, test.reason, test.status)
		if got.Changed || got.Payment.Detail == "" || got.Payment.DecidedAt.IsZero() || got.Payment.Amount != p.Amount {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
	if f.state() != before {
		t.Error("a refused payment changed something")
	}
	// Money that was refused may still find its order; money that has found it belongs to it.
	right := payment(order, 0)
	right.WebhookID = "msg_right"
	f.wantPayment(f.pay(right, sale, unknown), payments.Paid, "", "paid")
	right.WebhookID = "msg_again"
	f.wantPayment(f.pay(right, sale, unknown), payments.Repeated, "", "paid")
	for i, change := range []func(*payments.Payment){
		func(p *payments.Payment) { p.Amount++ },
		func(p *payments.Payment) { p.OrderID = uuid.NewString() },
		func(p *payments.Payment) { p.SaleID = "other" },
	} {
		wrong := right
		wrong.WebhookID = fmt.Sprint("msg_wrong_", i)
		change(&wrong)
		got := f.pay(wrong, sale, unknown)
		if got.Payment.Outcome != payments.Refused || got.Payment.Reason != payments.ReasonPaymentReused {
			t.Errorf("the same money for something else: got %+v", got.Payment)
		}
	}
}

// Operators' payments are in the audit log, with their outcomes.
func TestOperatorsPaymentsAreLogged(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	order := event("drop", "ann", 1, 1)
	f.persist(order)
	p := payment(order, 1)
	p.WebhookID, p.Actor, p.Amount, p.Currency = "", "cli:ann", 0, ""
	f.wantPayment(f.pay(p, sale, unknown), payments.Paid, "", "paid")
	f.wantPayment(f.pay(p, sale, unknown), payments.Repeated, "", "paid")
	got := one[string](f,
		`select string_agg(actor || ' ' || action || ' ' || sale_id || ' ' || (detail ->> 'outcome') || ' ' || (detail ->> 'order_id'), ', ' order by id) from audit_log`)
	if want := strings.ReplaceAll("cli:ann pay drop paid X, cli:ann pay drop repeated X", "X",
		order.OrderID); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := f.store.Payments(f.ctx(), payments.Filter{
		OrderID: order.OrderID,
		Outcome: payments.Paid,
	}); err != nil || len(got) != 1 || got[0].PaymentID != p.PaymentID {
		t.Errorf("listed: got %+v, %v", got, err)
	}
	for _, filter := range []payments.Filter{
		{SaleID: "other"},
		{SaleID: "\x00"},
		{OrderID: "x"},
		{After: 1 << 40},
		{Outcome: "lost"},
	} {
		if got, err := f.store.Payments(f.ctx(), filter); err != nil || len(got) != 0 {
			t.Errorf("%+v: got %+v, %v", filter, got, err)
		}
	}
	again, changed, err := f.store.CancelOrderAs(f.ctx(), "drop", order.OrderID, "cli:ann", "asked for")
	if err != nil || changed || again.Status != pipeline.StatusPaid {
		t.Errorf("cancel a paid order: got %s, %t, %v", again.Status, changed, err)
	}
	other := event("drop", "bob", 1, 2)
	f.persist(other)
	for i := range 2 {
		got, changed, err := f.store.CancelOrderAs(f.ctx(), "drop", other.OrderID, "cli:ann", "asked for")
		if err != nil || changed != (i == 0) || got.Status != pipeline.StatusCancelled {
			t.Errorf("cancel: got %s, %t, %v", got.Status, changed, err)
		}
	}
	if got := one[string](f,
		`select string_agg(actor || ': ' || (detail ->> 'reason'), ', ') from audit_log where action = 'cancel'`); got != "cli:ann: asked for" {
		t.Errorf("audit log: got %q", got)
	}
	if f.owed("drop") != 1 {
		t.Errorf("%d releases, want 1", f.owed("drop"))
	}
}
