package httpapi_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"sluice/pipeline/payments"
)

// refundOf is the body that reports a refund of 19.99 EUR; changes replace fields, and nil leaves one out.
func refundOf(paymentID string, changes map[string]any) string {
	data := map[string]any{
		"refund_id": "re_" + paymentID, "payment_id": paymentID, "amount": 1999, "currency": "EUR", "by": "a provider",
	}
	maps.Copy(data, changes)
	for name, value := range changes {
		if value == nil {
			delete(data, name)
		}
	}
	body, err := json.Marshal(map[string]any{"type": "payment.refunded", "data": data})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// TestRefundWebhook: the provider says that a double payment is paid back: once, whatever is repeated; less than all of
// it is refused, unless the message says that it is partial.
func TestRefundWebhook(t *testing.T) {
	t.Parallel()
	c := loadContract(t)
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(pricedSale("drop-1", 10))
	ann := r.place("drop-1", "ann", "")
	r.persist(sale)
	r.empty(sale)
	r.paid(delivery("msg_1", paymentOf(ann, nil)), 200, "paid", "", "paid")
	double := paymentOf(ann, map[string]any{"payment_id": "p2"})
	r.paid(delivery("msg_2", double), 200, "refund_due", "already-paid", "paid")

	for id, test := range map[string]struct {
		body   string
		status int
		code   string
		says   string
	}{
		"msg_less":    {refundOf("p2", map[string]any{"amount": 500}), 422, "amount-mismatch", "must be reported as partial"},
		"msg_more":    {refundOf("p2", map[string]any{"amount": 2000}), 422, "amount-mismatch", "20.00 EUR"},
		"msg_nobody":  {refundOf("p9", nil), 404, "unknown-payment", "no such payment"},
		"msg_paid":    {refundOf("pay_"+ann.OrderID, nil), 422, "refund-refused", "return the order first"},
		"msg_no_id":   {refundOf("p2", map[string]any{"refund_id": nil}), 400, "invalid-request", "refund_id: it is missing"},
		"msg_no_sum":  {refundOf("p2", map[string]any{"amount": nil}), 400, "invalid-request", "amount: it is missing"},
		"msg_partial": {refundOf("p2", map[string]any{"partial": "yes"}), 400, "invalid-request", "true or false"},
		"msg_no_data": {`{"type":"payment.refunded"}`, 400, "invalid-request", "data: it is missing"},
	} {
		for range 2 { // the same message gets the same answer
			got := r.expect(delivery(id, test.body), test.status, test.code)
			if !strings.Contains(got.problem().Detail, test.says) {
				t.Errorf("%s: got %q, want %q", id, got.problem().Detail, test.says)
			}
		}
	}
	forged := delivery("msg_forged", refundOf("p2", nil)).with("webhook-signature", "v1,AAAA")
	r.expect(forged, 401, "invalid-signature")
	if due, err := r.store.Payments(t.Context(), payments.Filter{Outcome: payments.RefundDue}); err != nil ||
		len(due) != 1 || due[0].RefundedAmount != 0 {
		t.Fatalf("what was refused changed something: %+v, %v", due, err)
	}
	outcome := func(id, body, want string) []byte {
		t.Helper()
		got := r.expect(delivery(id, body), 200, "")
		var v struct{ Outcome string }
		must(t, json.Unmarshal(got.body, &v))
		if v.Outcome != want {
			t.Fatalf("%s: got %s, want %s", id, got.body, want)
		}
		return got.body
	}
	part := refundOf("p2", map[string]any{"amount": 500, "partial": true, "refund_id": "re_1"})
	outcome("msg_part", part, "partially_refunded")
	rest := refundOf("p2", map[string]any{"amount": 1499, "refund_id": "re_2"})
	first := outcome("msg_rest", rest, "refunded")
	if again := outcome("msg_rest", rest, "refunded"); string(again) != string(first) {
		t.Errorf("the same message again: got %s, want %s", again, first)
	}
	outcome("msg_rest_2", rest, "repeated")
	r.expect(delivery("msg_late", refundOf("p2", map[string]any{"refund_id": "re_3"})), 422, "refund-refused")
	// What was answered about the payment says what became of it.
	r.paid(delivery("msg_2", double), 200, "refunded", "already-paid", "paid")
}
