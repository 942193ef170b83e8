package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/view"
)

func giveRecords(r *adminRig) {
	r.expect(ask("GET", "payments", ""), 200, "")
	r.expect(ask("GET", "payments?limit=501&outcome=lost", ""), 400, "invalid-request")
}

type paymentList struct {
	Payments  []view.Payment
	NextAfter *string `json:"next_after"`
}

// TestAdminPayments: operators see what was reported, by whom, and what became of it, page by page.
func TestAdminPayments(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	sale := decode[view.Sale](t,
		r.expect(post("sales", `{"id":"drop-1","total":10,"unit_price":1999,"currency":"EUR"}`), 201, ""))
	if sale.UnitPrice == nil || *sale.UnitPrice != 1999 || sale.Currency == nil || *sale.Currency != "EUR" {
		t.Errorf("created: got %+v", sale)
	}
	for body, says := range map[string]string{
		`"unit_price":-1,"currency":"EUR"`: "unit price -1", `"unit_price":5`: "a price needs one",
		`"currency":"EUR"`:                "or neither",
		`"unit_price":5,"currency":"eur"`: `currency "eur"`, `"unit_price":1000000001,"currency":"EUR"`: "1000000000",
		`"unit_price":5,"currency":"EUR","payment_window_seconds":0`: "asks for no payment",
	} {
		got := r.expect(post("sales", `{"id":"drop-2","total":1,`+body+`}`), 400, "invalid-request")
		if !strings.Contains(got.problem().Detail, says) {
			t.Errorf("%s: got %q, want %q", body, got.problem().Detail, says)
		}
	}
	r.reload()
	ann := r.public.place("drop-1", "ann", "")
	stored := r.stored("drop-1")
	r.persist(stored)
	r.empty(stored)
	r.public.paid(delivery("msg_1", paymentOf(ann, nil)), 200, "paid", "", "paid")
	r.public.expect(delivery("msg_2", "{}"), 400, "invalid-request")
	r.public.paid(delivery("msg_3", paymentOf(ann, map[string]any{"payment_id": "p2", "user_id": "ann"})), 200,
		"refund_due", "already-paid", "paid")

	list := func(query string) paymentList {
		t.Helper()
		return decode[paymentList](t, r.expect(ask("GET", "payments"+query, ""), 200, ""))
	}
	all := list("").Payments
	if len(all) != 3 {
		t.Fatalf("got %+v", all)
	}
	if p := all[0]; p.Outcome != "paid" || p.PaymentID != "pay_"+ann.OrderID || *p.Amount != 1999 ||
		*p.Currency != "EUR" || p.Actor != "webhook" ||
		*p.WebhookID != "msg_1" || *p.OrderStatus != "paid" || p.DecidedAt == nil || p.Reason != nil || p.UserID != nil {
		t.Errorf("paid: got %+v", p)
	}
	if p := all[1]; p.Outcome != "refused" || *p.Reason != "invalid-request" || p.Detail != "type: it is missing" ||
		p.Amount != nil || p.OrderID != "" {
		t.Errorf("refused: got %+v", p)
	}
	if p := all[2]; p.Outcome != "refund_due" || *p.Reason != "already-paid" || *p.UserID != "ann" {
		t.Errorf("to be paid back: got %+v", p)
	}
	for query, want := range map[string]int{
		"?outcome=refused": 1, "?outcome=waiting": 0, "?sale=drop-1": 2, "?sale=drop-9": 0, "?sale=%00%ff": 0,
		"?order=" + ann.OrderID: 2,
		"?order=x":              0, "?after=" + all[0].ID: 2, "?after=" + all[2].ID: 0,
	} {
		if got := list(query); len(got.Payments) != want || got.NextAfter != nil {
			t.Errorf("%s: got %d, next %v, want %d", query, len(got.Payments), got.NextAfter, want)
		}
	}
	if page := list("?limit=2"); len(page.Payments) != 2 || page.NextAfter == nil || *page.NextAfter != all[1].ID {
		t.Errorf("a page: got %s", fmt.Sprint(page))
	}
}
