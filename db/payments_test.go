package db_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// priced is a sale of which a unit costs 19.99 EUR.
func (f *fixture) priced(id string, total int64) *pipeline.Sale {
	f.Helper()
	sale := newSale(id, total)
	sale.UnitPrice, sale.Currency = 1999, "EUR"
	if err := f.store.CreateSale(f.ctx(), sale); err != nil {
		f.Fatalf("create sale: %v", err)
	}
	return sale
}

// payment pays an order's price, told by a webhook.
func payment(e pipeline.Event, n int) pipeline.Payment {
	return pipeline.Payment{
		WebhookID: fmt.Sprintf("msg_%s_%d", e.OrderID, n), PaymentID: fmt.Sprintf("pay_%s_%d", e.OrderID, n), SaleID: e.SaleID,
		OrderID: e.OrderID, Amount: 1999 * int64(e.Quantity), Currency: "EUR", Actor: pipeline.WebhookActor,
	}
}

var (
	unknown = pipeline.Refusal(pipeline.ReasonUnknownOrder, "no such order")
	later   = pipeline.PaymentDecision{Outcome: pipeline.PaymentWaiting}
)

func (f *fixture) pay(p pipeline.Payment, sale *pipeline.Sale, absent pipeline.PaymentDecision) pipeline.PaymentRecord {
	f.Helper()
	record, err := f.store.RecordPayment(f.ctx(), p, sale, absent)
	if err != nil {
		f.Fatalf("record payment %s: %v", p.PaymentID, err)
	}
	return record
}

func (f *fixture) wantPayment(got pipeline.PaymentRecord, outcome pipeline.PaymentOutcome, reason pipeline.PaymentReason, status pipeline.OrderStatus) {
	f.Helper()
	if got.Payment.Outcome != outcome || got.Payment.Reason != reason || got.Payment.OrderStatus != status {
		f.Errorf("got %s, %q, order %q; want %s, %q, %q", got.Payment.Outcome, got.Payment.Reason, got.Payment.OrderStatus, outcome, reason, status)
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
	free := newSale("free", 100)
	free.PaymentWindow = 0
	if err := f.store.CreateSale(f.ctx(), free); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		from    pipeline.OrderStatus
		outcome pipeline.PaymentOutcome
		reason  pipeline.PaymentReason
		to      pipeline.OrderStatus
	}{
		{pipeline.StatusAwaitingPayment, pipeline.PaymentPaid, "", pipeline.StatusPaid},
		{pipeline.StatusPaid, pipeline.PaymentRefundDue, pipeline.ReasonAlreadyPaid, pipeline.StatusPaid},
		{pipeline.StatusCancelled, pipeline.PaymentRefundDue, pipeline.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusExpired, pipeline.PaymentRefundDue, pipeline.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusRejected, pipeline.PaymentRefundDue, pipeline.ReasonOrderEnded, pipeline.StatusRefundDue},
		{pipeline.StatusRefundDue, pipeline.PaymentRefundDue, pipeline.ReasonNothingDue, pipeline.StatusRefundDue},
	} {
		order := event("drop", fmt.Sprint("buyer-", i), 2, int64(i+1))
		f.persist(order)
		f.exec(`alter table orders disable trigger user`)
		f.exec(`update orders set status = $2, reason = 'r', paid_at = now(), payment_id = 'other', number = case when $2 = 'rejected' then null else number end,
			closed_at = case when $3::boolean then null else now() end where id = $1::text::uuid`, order.OrderID, test.from, test.from.Live())
		f.exec(`alter table orders enable trigger user`)
		sold, owed := f.books("drop").sold, f.owed("drop")
		got := f.pay(payment(order, 1), sale, unknown)
		f.wantPayment(got, test.outcome, test.reason, test.to)
		if f.status(order) != test.to || got.Order.Status != test.to || got.Changed != (test.from != test.to) {
			t.Errorf("%s: the order is %s, told as %s, changed %t", test.from, f.status(order), got.Order.Status, got.Changed)
		}
		if got.Changed && (got.Order.PaidAt.IsZero() || one[string](f, `select payment_id from orders where id = $1::text::uuid`, order.OrderID) != got.Payment.PaymentID) {
			t.Errorf("%s: the order does not tell what paid it: %+v", test.from, got.Order)
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
	f.wantPayment(f.pay(payment(order, 1), free, unknown), pipeline.PaymentRefundDue, pipeline.ReasonNoPaymentDue, pipeline.StatusConfirmed)
}

// payments is all that the table holds.
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
		change func(*pipeline.Payment) *pipeline.Sale
		reason pipeline.PaymentReason
		status pipeline.OrderStatus
	}{
		{"too little", func(p *pipeline.Payment) *pipeline.Sale { p.Amount--; return sale }, pipeline.ReasonAmountMismatch, "awaiting_payment"},
		{"the price of one unit", func(p *pipeline.Payment) *pipeline.Sale { p.Amount = 1999; return sale }, pipeline.ReasonAmountMismatch, "awaiting_payment"},
		{"another currency", func(p *pipeline.Payment) *pipeline.Sale { p.Currency = "USD"; return sale }, pipeline.ReasonAmountMismatch, "awaiting_payment"},
		{"another buyer", func(p *pipeline.Payment) *pipeline.Sale { p.UserID = "bob"; return sale }, pipeline.ReasonForeignOrder, ""},
		{"another sale", func(p *pipeline.Payment) *pipeline.Sale { p.SaleID = "other"; return other }, pipeline.ReasonUnknownOrder, ""},
		{"no such order", func(p *pipeline.Payment) *pipeline.Sale { p.OrderID = uuid.NewString(); return sale }, pipeline.ReasonUnknownOrder, ""},
		{"no sale", func(*pipeline.Payment) *pipeline.Sale { return nil }, pipeline.ReasonUnknownOrder, ""},
	} {
		p := payment(order, i)
		of := test.change(&p)
		got := f.pay(p, of, unknown)
		f.wantPayment(got, pipeline.PaymentRefused, test.reason, test.status)
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
	f.wantPayment(f.pay(right, sale, unknown), pipeline.PaymentPaid, "", "paid")
	right.WebhookID = "msg_again"
	f.wantPayment(f.pay(right, sale, unknown), pipeline.PaymentRepeated, "", "paid")
	for i, change := range []func(*pipeline.Payment){
		func(p *pipeline.Payment) { p.Amount++ },
		func(p *pipeline.Payment) { p.OrderID = uuid.NewString() },
		func(p *pipeline.Payment) { p.SaleID = "other" },
	} {
		wrong := right
		wrong.WebhookID = fmt.Sprint("msg_wrong_", i)
		change(&wrong)
		got := f.pay(wrong, sale, unknown)
		if got.Payment.Outcome != pipeline.PaymentRefused || got.Payment.Reason != pipeline.ReasonPaymentReused {
			t.Errorf("the same money for something else: got %+v", got.Payment)
		}
	}
}

// A payment that waits is decided once, whoever looks, and is the same money until then.
func TestWaitingPayment(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	order, never := event("drop", "ann", 1, 1), event("drop", "bob", 1, 2)
	first := f.pay(payment(order, 1), sale, later)
	f.wantPayment(first, pipeline.PaymentWaiting, "", pipeline.StatusQueued)
	f.wantPayment(f.pay(payment(order, 2), sale, later), pipeline.PaymentWaiting, "", pipeline.StatusQueued)
	f.pay(payment(never, 1), sale, later)
	again := payment(order, 1)
	again.WebhookID = "msg_again"
	f.wantPayment(f.pay(again, sale, later), pipeline.PaymentRepeated, "", pipeline.StatusQueued)
	if nothing := f.pay(payment(event("drop", "cy", 1, 3), 1), sale, pipeline.PaymentDecision{}); nothing.Payment.Outcome != "" {
		t.Errorf("undecided: got %+v", nothing)
	}

	waiting := func() []pipeline.WaitingPayment {
		t.Helper()
		list, err := f.store.WaitingPayments(f.ctx(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	decide := func(id int64, absent pipeline.PaymentDecision) pipeline.PaymentRecord {
		t.Helper()
		record, err := f.store.DecideWaiting(f.ctx(), id, sale, absent)
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	list := waiting()
	if len(list) != 3 || list[0].Stored || list[0].SaleID != "drop" || list[0].ReceivedAt.IsZero() {
		t.Fatalf("waiting: got %+v", list)
	}
	if got := decide(list[0].ID, pipeline.PaymentDecision{}); got.Payment.Outcome != "" || len(waiting()) != 3 {
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
				record, err := f.store.DecideWaiting(t.Context(), w.ID, sale, unknown)
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
	if got := one[string](f, `select string_agg(outcome || ' ' || reason || ' ' || order_status, ', ' order by id) from payments where outcome <> 'repeated'`); got !=
		"paid  paid, refund_due already-paid paid, refused unknown-order " && got != "refund_due already-paid paid, paid  paid, refused unknown-order " {
		t.Errorf("got %q", got)
	}
	replayed := f.pay(payment(order, 1), sale, unknown)
	if !replayed.Replayed || replayed.Payment.Outcome == pipeline.PaymentWaiting {
		t.Errorf("the webhook again: got %+v, want what became of it", replayed)
	}
}

// Operators' payments are in the audit log, with what became of them.
func TestOperatorsPaymentsAreLogged(t *testing.T) {
	f := setup(t)
	sale := f.priced("drop", 100)
	order := event("drop", "ann", 1, 1)
	f.persist(order)
	p := payment(order, 1)
	p.WebhookID, p.Actor, p.Amount, p.Currency = "", "cli:ann", 0, ""
	f.wantPayment(f.pay(p, sale, unknown), pipeline.PaymentPaid, "", "paid")
	f.wantPayment(f.pay(p, sale, unknown), pipeline.PaymentRepeated, "", "paid")
	got := one[string](f, `select string_agg(actor || ' ' || action || ' ' || sale_id || ' ' || (detail ->> 'outcome') || ' ' || (detail ->> 'order_id'), ', ' order by id) from audit_log`)
	if want := strings.ReplaceAll("cli:ann pay drop paid X, cli:ann pay drop repeated X", "X", order.OrderID); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := f.store.Payments(f.ctx(), pipeline.PaymentsFilter{OrderID: order.OrderID, Outcome: pipeline.PaymentPaid}); err != nil || len(got) != 1 || got[0].PaymentID != p.PaymentID {
		t.Errorf("listed: got %+v, %v", got, err)
	}
	for _, filter := range []pipeline.PaymentsFilter{{SaleID: "other"}, {SaleID: "\x00"}, {OrderID: "x"}, {After: 1 << 40}, {Outcome: "lost"}} {
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
	if got := one[string](f, `select string_agg(actor || ': ' || (detail ->> 'reason'), ', ') from audit_log where action = 'cancel'`); got != "cli:ann: asked for" {
		t.Errorf("the audit log says %q", got)
	}
	if f.owed("drop") != 1 {
		t.Errorf("%d releases, want 1", f.owed("drop"))
	}
}

// TestPaymentRaces: for many orders at once two payments, each told of twice, a cancellation and the expiry meet. Exactly one
// of paid, cancelled and expired wins; units go back once where it was not the payment; and no money is lost: it has paid
// its order, or is to be paid back, and counts once.
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
		moneys := one[string](f, `select string_agg(outcome, ' ' order by outcome) from payments where order_id = $1::text::uuid`, e.OrderID)
		if wantMoneys := map[bool]string{true: "paid refund_due", false: "refund_due refund_due"}[status == pipeline.StatusPaid]; moneys != wantMoneys {
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
		got := one[string](f, `select count(*) || ' ' || count(*) filter (where outcome = 'paid') || ' ' || count(distinct webhook_id) from payments where order_id = $1::text::uuid`, order.OrderID)
		if got != "3 1 3" {
			t.Errorf("records, paid, webhooks: got %s, want 3 1 3", got)
		}
	}
}
