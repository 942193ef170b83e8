package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/view"
)

// moneyChanges are the calls about orders and payments, by their last word, with a body that each takes.
var moneyChanges = map[string]string{
	"return":   `{"restock":true,"reason":"broken"}`,
	"refunded": `{"refund_id":"re_1"}`,
	"extend":   extendBody(time.Hour),
}

func extendBody(by time.Duration) string {
	return fmt.Sprintf(`{"until":%q,"reason":"the provider was down"}`, time.Now().Add(by).UTC().Format(time.RFC3339))
}

// paidOrders are orders of a priced sale of their own: ann's is paid twice, bob's awaits its payment.
func (r *adminRig) paidOrders(sale string) (ann, bob receipt) {
	r.t.Helper()
	r.create(pricedSale(sale, 5))
	ann, bob = r.public.place(sale, "ann", ""), r.public.place(sale, "bob", `{"quantity":2}`)
	stored := r.stored(sale)
	r.persist(stored)
	r.empty(stored)
	r.public.paid(delivery("msg_1_"+sale, paymentOf(ann, nil)), 200, "paid", "", "paid")
	r.public.paid(delivery("msg_2_"+sale, paymentOf(ann, map[string]any{"payment_id": "double_" + sale})), 200,
		"refund_due", "already-paid", "paid")
	return ann, bob
}

func orderCall(o receipt, verb string) string {
	return "sales/" + o.SaleID + "/orders/" + o.OrderID + "/" + verb
}

// due is the payments that are to be paid back.
func (r *adminRig) due() []view.Payment {
	r.t.Helper()
	return decode[paymentList](r.t, r.expect(ask("GET", "payments?outcome=refund_due", ""), 200, "")).Payments
}

func giveMoney(r *adminRig) {
	ann, bob := r.paidOrders("money")
	refunded := "payments/" + r.due()[0].ID + "/refunded"
	r.expect(post(refunded, `{"amount":5,"currency":"EUR"}`), 409, "conflict")
	r.expect(post(refunded, `{"refund_id":"re_1"}`), 200, "")
	r.expect(post("payments/999/refunded", ""), 404, "unknown-payment")
	r.expect(post(orderCall(bob, "return"), moneyChanges["return"]), 409, "conflict")
	r.expect(post(orderCall(bob, "extend"), moneyChanges["extend"]), 200, "")
	r.expect(post("sales/money/extend", moneyChanges["extend"]), 200, "")
	r.expect(post(orderCall(ann, "return"), moneyChanges["return"]), 200, "")
	r.expect(post(orderCall(ann, "extend"), moneyChanges["extend"]), 409, "conflict")
	none := receipt{SaleID: "money", OrderID: "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f"}
	nowhere := receipt{SaleID: "none", OrderID: none.OrderID}
	for _, verb := range []string{"return", "extend"} {
		r.expect(post(orderCall(none, verb), moneyChanges[verb]), 404, "unknown-order")
		r.expect(post(orderCall(nowhere, verb), moneyChanges[verb]), 404, "unknown-sale")
	}
	r.expect(post("sales/none/extend", moneyChanges["extend"]), 404, "unknown-sale")
	for path, body := range map[string]string{
		refunded: `{"amount":-1,"currency":"EUR"}`, orderCall(bob, "return"): `{"reason":"r"}`,
		orderCall(bob, "extend"): extendBody(48 * time.Hour), "sales/money/extend": extendBody(-time.Hour),
	} {
		r.expect(post(path, body), 400, "invalid-request")
		r.expect(post(path, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post(path, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	}
}

// TestAdminMoney is the way of money back: a double payment and a returned order are due for refund, until an operator
// says that they are refunded, partly or as a whole.
func TestAdminMoney(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	ann, bob := r.paidOrders("drop-1")
	got := decode[view.Order](t,
		r.expect(post(orderCall(ann, "return"), `{"restock":false,"reason":"broken"}`).with("Authorization", r.as("eve")), 200, ""))
	if got.Status != "returned" || got.Amount == nil || *got.Amount != 1999 || got.Currency == nil || *got.Currency != "EUR" ||
		got.UserID != "ann" || got.ClosedAt == nil {
		t.Errorf("returned: got %+v", got)
	}
	due := r.due()
	if len(due) != 2 || *due[0].Reason != "order-returned" || *due[1].Reason != "already-paid" {
		t.Fatalf("due for refund: got %+v", due)
	}
	refund := func(i int, body string, status int, code string) view.Refund {
		t.Helper()
		answer := r.expect(post("payments/"+due[i].ID+"/refunded", body).with("Authorization", r.as("eve")), status, code)
		if code != "" {
			return view.Refund{Outcome: answer.problem().Detail}
		}
		return decode[view.Refund](t, answer)
	}
	if v := refund(0, `{"refund_id":"re_1","amount":500,"currency":"EUR"}`, 409, "conflict"); !strings.Contains(v.Outcome,
		"19.99 EUR") || !strings.Contains(v.Outcome, "partial") {
		t.Errorf("less than all: got %q", v.Outcome)
	}
	part := `{"refund_id":"re_1","amount":500,"currency":"EUR","partial":true}`
	if v := refund(0, part, 200, ""); v.Outcome != "partially_refunded" || v.Payment.Outcome != "refund_due" ||
		v.Payment.Refunded != 500 {
		t.Errorf("a part: got %+v", v)
	}
	if v := refund(0, part, 200, ""); v.Outcome != "repeated" || v.Payment.Refunded != 500 {
		t.Errorf("the part again: got %+v", v)
	}
	refund(0, `{"amount":5,"currency":"EUR","partial":true}`, 400, "invalid-request") // without an id of its own
	if v := refund(0, `{}`, 200, ""); v.Outcome != "refunded" || *v.Amount != 1499 || v.Payment.Refunded != 1999 ||
		v.Payment.RefundedAt == nil {
		t.Errorf("the rest: got %+v", v)
	}
	if left := r.due(); len(left) != 1 || left[0].ID != due[1].ID {
		t.Errorf("left: got %+v", left)
	}
	if v := decode[orderView](t, r.public.expect(get("/v1/sales/drop-1/orders/"+ann.OrderID, "ann"), 200,
		"")); v.Status != "returned" {
		t.Errorf("one of two payments is back: the order is %s", v.Status)
	}
	refund(1, "", 200, "")
	if v := decode[orderView](t, r.public.expect(get("/v1/sales/drop-1/orders/"+ann.OrderID, "ann"), 200,
		"")); v.Status != "refunded" {
		t.Errorf("all is back: the order is %s", v.Status)
	}
	extended := decode[struct{ Extended int }](t, r.expect(post("sales/drop-1/extend", extendBody(time.Hour)), 200, ""))
	if extended.Extended != 1 {
		t.Errorf("extended %d orders, want bob's", extended.Extended)
	}
	if v := decode[orderView](t, r.public.expect(get("/v1/sales/drop-1/orders/"+bob.OrderID, "bob"), 200, "")); v.PayBy <
		time.Now().Add(50*time.Minute).UTC().Format(time.RFC3339) {
		t.Errorf("bob's order is to be paid by %s", v.PayBy)
	}
}

// TestOrdersSayWhatTheyCost: wherever an order is shown, from the receipt on.
func TestOrdersSayWhatTheyCost(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(pricedSale("drop-1", 5))
	free := r.create(newSale("drop-2", 5))
	placed := r.expect(order("drop-1", "ann", `{"quantity":2}`), 202, "")
	bodies := map[string][]byte{"receipt": placed.body}
	path := placed.header.Get("Location")
	bodies["queued"] = r.expect(get(path, "ann"), 200, "").body
	r.persist(sale)
	bodies["stored"] = r.expect(get(path, "ann"), 200, "").body
	bodies["mine"] = r.expect(get("/v1/sales/drop-1/orders/mine", "ann"), 200, "").body
	bodies["cancelled"] = r.expect(cancel(path, "ann"), 200, "").body
	for name, body := range bodies {
		var v struct {
			Amount   int64
			Currency string
		}
		must(t, json.Unmarshal(body, &v))
		if v.Amount != 3998 || v.Currency != "EUR" {
			t.Errorf("%s: got %s, want 3998 minor units of EUR", name, body)
		}
	}
	if got := r.expect(order(free.ID, "ann", ""), 202, ""); strings.Contains(string(got.body), "amount") {
		t.Errorf("an order without a price: got %s", got.body)
	}
}
