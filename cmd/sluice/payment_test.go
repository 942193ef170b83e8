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
	if !strings.Contains(out, "1999 EUR per unit") {
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
	if got := pay(ann, "--payment-id", "pay_2"); got.code != 1 || !strings.Contains(got.out, "paid by another payment") {
		t.Errorf("twice: got %+v, want exit code 1 and the reason", got)
	}
	cancel(ann).mustRefuse(t, 1, "is paid and can't be cancelled", "nothing was changed")
	pay(bob, "--amount", "1998", "--currency", "EUR").mustRefuse(t, 2, "costs 1999 EUR, and 1998 EUR",
		"recorded as refused")
	if out := cancel(bob).mustFine(t); !strings.Contains(out, "is cancelled") {
		t.Errorf("cancel: got %q", out)
	}
	cancel(bob).mustFine(t)
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
	if out := sluice(t, at, "payment", "ls", "--limit", "2").mustFine(t); !strings.Contains(out, "--after 2") ||
		!strings.Contains(out, "manual-"+ann) {
		t.Errorf("the table: got %q", out)
	}
	sluice(t, at, "audit").mustFine(t)
}
