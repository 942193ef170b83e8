package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

// The life of payments by hand: what an operator reports is decided, recorded under the operator's name, and answered
// in one sentence.
func TestOperatorPaysAndCancels(t *testing.T) {
	t.Parallel()
	at := servers(t)
	out := sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10", "--price", "1999", "--currency",
		"EUR").mustFine(t)
	if !strings.Contains(out, "19.99 EUR per unit") {
		t.Errorf("got %q, want the price", out)
	}
	if out := sluice(t, at, "sale", "create", "--id", "drop-2", "--stock", "10").mustFine(t); !strings.Contains(out,
		"recorded, and not compared") {
		t.Errorf("got %q, want it to say that amounts are not compared", out)
	}
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	ann, bob := accept(t, at, rdb, "ann"), accept(t, at, rdb, "bob")
	pay := func(order string, more ...string) outcome {
		return sluice(t, at, append([]string{"order", "pay", order, "--sale", "drop-1"}, more...)...)
	}
	if out := pay(ann).mustFine(t); !strings.Contains(out, "it waits") {
		t.Errorf("queued: got %q", out)
	}
	cancel := func(order string) outcome {
		return sluice(t, at, "order", "cancel", order, "--sale", "drop-1", "--reason", "asked for")
	}
	cancel(ann).mustRefuse(t, 2, "no such order", "queued")
	stop := startWorker(t, at)
	defer stop()
	testkit.Eventually(t, time.Minute, "ann's payment to be decided",
		func() bool { return showOrder(t, at, ann).Status == "paid" })
	testkit.Eventually(t, time.Minute, "bob's order to be stored", func() bool { return showOrder(t, at, bob).Row != nil })
	if out := pay(ann).mustFine(t); !strings.Contains(out, "reported before") {
		t.Errorf("again: got %q", out)
	}
	if got := pay(ann, "--payment-id", "pay_2"); got.code != 1 || !strings.Contains(got.out, "paid by another payment") ||
		!strings.Contains(got.out, "--second") {
		t.Errorf("twice: got %+v, want exit code 1, the reason and what to do", got)
	}
	pay(ann, "--second").mustRefuse(t, 2, "--payment-id")
	if got := pay(ann, "--payment-id", "pay_2", "--second"); got.code != 1 || !strings.Contains(got.out, "paid back") {
		t.Errorf("other money: got %+v, want exit code 1 and the reason", got)
	}
	cancel(ann).mustRefuse(t, 1, "is paid and can't be cancelled", "nothing was changed")
	pay(bob, "--amount", "1998", "--currency", "EUR").mustRefuse(t, 2, "costs 19.99 EUR, and 19.98 EUR",
		"recorded as refused")
	if out := cancel(bob).mustFine(t); !strings.Contains(out, "is cancelled") {
		t.Errorf("cancel: got %q", out)
	}
	if out := cancel(bob).mustFine(t); !strings.Contains(out, "was cancelled before") || strings.Contains(out, "units") {
		t.Errorf("cancel again: got %q, want it to say that nothing was changed", out)
	}
	if got := pay(bob, "--amount", "1999", "--currency", "EUR"); got.code != 1 ||
		!strings.Contains(got.out, "to be paid back") || got.err != "" {
		t.Errorf("too late: got %+v, want exit code 1 and what to do", got)
	}
	if v := showOrder(t, at, bob); v.Status != "refund_due" {
		t.Errorf("got %s, want refund_due", v.Status)
	}
	sluice(t, at, "order", "pay", ann, "--sale", "drop-9").mustRefuse(t, 2, "drop-9")
	pay("018f0000-0000-7000-8000-000000000000").mustRefuse(t, 2, "no such order")

	list := func(more ...string) []view.Payment {
		t.Helper()
		return decoded[[]view.Payment](t, sluice(t, at, append([]string{"payment", "ls", "--json"}, more...)...).mustFine(t))
	}
	var got []string
	for _, p := range list() {
		reason := ""
		if p.Reason != nil {
			reason = *p.Reason
		}
		got = append(got, fmt.Sprintf("%s:%s", p.Outcome, reason))
		if !strings.HasPrefix(p.Actor, "cli:") {
			t.Errorf("reported by %q", p.Actor)
		}
	}
	want := "paid: repeated: refund_due:already-paid refused:amount-mismatch refund_due:order-ended refused:unknown-sale refused:unknown-order"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
	if got := list("--outcome", "refund_due", "--order", bob); len(got) != 1 || *got[0].Amount != 1999 {
		t.Errorf("to be paid back: got %+v", got)
	}
	if out := sluice(t, at, "payment", "ls").mustFine(t); !strings.Contains(out, "19.99 EUR") {
		t.Errorf("the table: got %q, want amounts as people read them", out)
	}
	if out := sluice(t, at, "payment", "ls", "--limit", "2").mustFine(t); !strings.Contains(out, "--after 2") ||
		!strings.Contains(out, "manual-"+ann) {
		t.Errorf("the table: got %q", out)
	}
	sluice(t, at, "audit").mustFine(t)
}

// What an operator does about money that must go back: return an order, note refunds, and give more time to pay.
func TestOperatorReturnsRefundsAndExtends(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10", "--price", "1999", "--currency", "EUR").mustFine(t)
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	ann, bob := accept(t, at, rdb, "ann"), accept(t, at, rdb, "bob")
	if v := showOrder(t, at, ann); v.Amount == nil || *v.Amount != 1999 || *v.Currency != "EUR" {
		t.Errorf("queued: got %+v, want what it costs", v)
	}
	stop := startWorker(t, at)
	defer stop()
	for _, id := range []string{ann, bob} {
		testkit.Eventually(t, time.Minute, "the order to be stored", func() bool { return showOrder(t, at, id).Row != nil })
	}
	sluice(t, at, "order", "pay", ann, "--sale", "drop-1", "--payment-id", "pay_1", "--amount", "1999", "--currency",
		"EUR").mustFine(t)
	again := sluice(t, at, "order", "pay", ann, "--sale", "drop-1")
	if out := again.mustFine(t); !strings.Contains(out, "nothing was changed") {
		t.Errorf("paid by another payment: got %q", out)
	}
	takeBack := func(id string) outcome {
		return sluice(t, at, "order", "return", id, "--sale", "drop-1", "--reason", "broken")
	}
	takeBack(bob).mustRefuse(t, 1, "cancel it instead", "nothing was changed")
	if out := takeBack(ann).mustFine(t); !strings.Contains(out, "is returned") {
		t.Errorf("return: got %q", out)
	}
	takeBack(ann).mustFine(t)
	due := decoded[[]view.Payment](t, sluice(t, at, "payment", "ls", "--outcome", "refund_due", "--json").mustFine(t))
	if len(due) != 1 || due[0].PaymentID != "pay_1" {
		t.Fatalf("due: got %+v", due)
	}
	refund := func(more ...string) outcome {
		return sluice(t, at, append([]string{"payment", "refunded", due[0].ID}, more...)...)
	}
	refund("--amount", "500", "--currency", "EUR").mustRefuse(t, 1, "19.99 EUR", "partial", "recorded as refused")
	refund("--amount", "500", "--currency", "EUR", "--partial").mustRefuse(t, 2, "needs the provider's id")
	part := refund("--amount", "500", "--currency", "EUR", "--partial", "--refund-id", "re_1")
	if out := part.mustFine(t); !strings.Contains(out, "5.00 EUR were paid back, 14.99 EUR remain due") {
		t.Errorf("a part: got %q", out)
	}
	if out := refund("--refund-id", "re_2").mustFine(t); !strings.Contains(out, "refunded, 19.99 EUR in all") {
		t.Errorf("the rest: got %q", out)
	}
	if out := refund("--refund-id", "re_2").mustFine(t); !strings.Contains(out, "reported before") {
		t.Errorf("again: got %q", out)
	}
	if v := showOrder(t, at, ann); v.Status != "refunded" {
		t.Errorf("the order is %s", v.Status)
	}
	sluice(t, at, "payment", "refunded", "999").mustRefuse(t, 2, "no payment that counts")
	sluice(t, at, "order", "extend", bob, "--sale", "drop-1", "--until", "+48h", "--reason", "r").mustRefuse(t, 2,
		"24 hours")
	if out := sluice(t, at, "order", "extend", bob, "--sale", "drop-1", "--until", "+1h", "--reason",
		"the provider was down").mustFine(t); !strings.Contains(out, "is to be paid by") {
		t.Errorf("extend: got %q", out)
	}
	whole := sluice(t, at, "sale", "extend", "drop-1", "--until", "+2h", "--reason", "still")
	if out := whole.mustFine(t); !strings.Contains(out, "1 order of sale drop-1 got more time to pay") {
		t.Errorf("extend a sale: got %q", out)
	}
	testkit.Eventually(t, time.Minute, "the slot to be given back", func() bool { return showOrder(t, at, ann).Slot == nil })
	if out := sluice(t, at, "audit").mustFine(t); !strings.Contains(out, "1 units of returned orders") {
		t.Errorf("audit: got %q, want it to name the withdrawn unit", out)
	}
}
