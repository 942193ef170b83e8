package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/httpapi"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func secretsOf(t testing.TB, secrets ...string) *httpapi.WebhookSecrets {
	t.Helper()
	s, err := httpapi.NewWebhookSecrets(secrets)
	must(t, err)
	return s
}

func (r *rig) newPayments() *payments.Service {
	r.metrics = prometheus.NewRegistry()
	parts := r.parts()
	parts.Metrics.Payment = payments.NewMetrics(r.metrics)
	return parts.Payments()
}

// delivery is a message of the payment provider, signed now.
func delivery(id, body string) call { return signed(id, body, webhookSecret, time.Now()) }

func signed(id, body, secret string, at time.Time) call {
	key, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(err)
	}
	signature, err := key.Sign(id, at, []byte(body))
	if err != nil {
		panic(err)
	}
	return call{method: http.MethodPost, path: "/v1/webhooks/payments", body: body}.with("Content-Type",
		"application/json").
		with("webhook-id", id).with("webhook-timestamp", strconv.FormatInt(at.Unix(), 10)).with("webhook-signature",
		signature)
}

// paymentOf is the body that reports 19.99 EUR for each unit of an order; changes replace fields, and nil leaves one
// out.
func paymentOf(order receipt, changes map[string]any) string {
	data := map[string]any{
		"payment_id": "pay_" + order.OrderID, "sale_id": order.SaleID, "order_id": order.OrderID,
		"amount": 1999 * order.Quantity, "currency": "EUR",
		"customer": map[string]any{"country": "DE"}, // which we know nothing of
	}
	maps.Copy(data, changes)
	for name, value := range changes {
		if value == nil {
			delete(data, name)
		}
	}
	body, err := json.Marshal(map[string]any{
		"type": "payment.succeeded", "timestamp": "2026-11-27T10:03:11Z",
		"data": data,
	})
	if err != nil {
		panic(err)
	}
	return string(body)
}

type paymentView struct {
	Outcome, Reason, Detail string
	PaymentID               string `json:"payment_id"`
	SaleID                  string `json:"sale_id"`
	OrderID                 string `json:"order_id"`
	OrderStatus             string `json:"order_status"`
}

// pricedSale is an open sale of which a unit costs 19.99 EUR.
func pricedSale(id string, stock int64) *pipeline.Sale {
	sale := newSale(id, stock)
	sale.UnitPrice, sale.Currency = 1999, "EUR"
	return sale
}

// place orders one unit, or as many as the body says.
func (r *rig) place(sale, user, body string) receipt {
	r.t.Helper()
	return decode[receipt](r.t, r.expect(order(sale, user, body), 202, ""))
}

// paid sends a webhook and demands an outcome.
func (r *rig) paid(c call, status int, outcome, reason, orderStatus string) reply {
	r.t.Helper()
	got := r.expect(c, status, "")
	if v := decode[paymentView](r.t, got); v.Outcome != outcome || v.Reason != reason || v.OrderStatus != orderStatus {
		r.t.Fatalf("got %s, want %s, %q, order %s", got.body, outcome, reason, orderStatus)
	}
	return got
}

// counted is how often a payment had an outcome.
func (r *rig) counted(outcome string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	must(r.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "sluice_payments_total" && m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func givePayments(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(pricedSale("drop-1", 10))
	ann := r.place("drop-1", "ann", "")
	r.paid(delivery("msg_early", paymentOf(ann, nil)), 202, "waiting", "", "queued")
	bob := r.place("drop-1", "bob", `{"quantity":2}`)
	r.persist(sale)
	r.paid(delivery("msg_bob", paymentOf(bob, nil)), 200, "paid", "", "paid")
	r.expect(delivery("msg_bad", "{}"), 400, "invalid-request")
	r.expect(delivery("msg_forged", paymentOf(ann, nil)).with("webhook-signature", "v1,AAAA"), 401, "invalid-signature")
	r.expect(delivery("msg_sale", paymentOf(ann, map[string]any{"sale_id": "drop-9", "payment_id": "p1"})), 404,
		"unknown-sale")
	r.empty(sale)
	r.expect(delivery("msg_order", paymentOf(ann, map[string]any{"order_id": uuid.NewString(), "payment_id": "p2"})), 404,
		"unknown-order")
	r.expect(delivery("msg_large", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(delivery("msg_amount", paymentOf(bob, map[string]any{"amount": 1, "payment_id": "p3"})), 422,
		"amount-mismatch")
	r.expect(delivery("msg_reused", paymentOf(bob, map[string]any{"amount": 1})), 422, "payment-reused")
	r.expect(delivery("msg_bob", paymentOf(bob, map[string]any{"amount": 1})), 422, "idempotency-key-reused")
	r.expect(delivery("msg_refund", refundOf("pay_"+bob.OrderID, nil)), 422, "refund-refused")
	r.expect(delivery("msg_nobody", refundOf("p9", nil)), 404, "unknown-payment")

	off := newRig(t, rigOptions{contract: c, deps: func(d *httpapi.Deps) { d.WebhookSecrets, d.Payments = nil, nil }})
	got := off.expect(delivery("msg_1", paymentOf(ann, nil)), 503, "webhooks-not-configured")
	if got.header.Get("Retry-After") != "60" || !strings.Contains(got.problem().Detail, "PAYMENT_WEBHOOK_SECRET") {
		t.Errorf("without a secret: got %v %s", got.header, got.body)
	}
}

// TestAReusedWebhookID: a message whose id belongs to another one is refused, whatever the first became, and changes
// nothing; the first may come again.
func TestAReusedWebhookID(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(pricedSale("drop-1", 10))
	ann, bob := r.place("drop-1", "ann", ""), r.place("drop-1", "bob", "")
	r.persist(sale)
	first := delivery("msg_1", paymentOf(ann, nil))
	r.paid(first, 200, "paid", "", "paid")
	r.expect(delivery("msg_2", paymentOf(bob, map[string]any{"amount": 7})), 422, "amount-mismatch")
	for _, id := range []string{"msg_1", "msg_2"} {
		r.expect(delivery(id, paymentOf(bob, nil)), 422, "idempotency-key-reused")
		r.expect(delivery(id, paymentOf(ann, map[string]any{"currency": "USD"})), 422, "idempotency-key-reused")
	}
	if order, err := r.store.Order(t.Context(), "drop-1", bob.OrderID); err != nil || order.Status != "awaiting_payment" {
		t.Errorf("bob's order: got %s, %v", order.Status, err)
	}
	r.paid(first, 200, "paid", "", "paid")
	r.paid(delivery("msg_3", paymentOf(bob, nil)), 200, "paid", "", "paid")

	r.expect(delivery("msg_4", refundOf("pay_"+bob.OrderID, nil)), 422, "refund-refused")
	r.expect(delivery("msg_4", refundOf("pay_"+ann.OrderID, nil)), 422, "idempotency-key-reused")

	invalid := map[string]any{"amount": nil}
	r.expect(delivery("msg_1", paymentOf(ann, invalid)), 422, "idempotency-key-reused")
	r.expect(delivery("msg_4", refundOf("pay_"+bob.OrderID, invalid)), 422, "idempotency-key-reused")
	for range 2 { // its own id
		r.expect(delivery("msg_5", paymentOf(ann, invalid)), 400, "invalid-request")
	}
}

// empty takes everything out of a sale's streams, as settling does.
func (r *rig) empty(sale *pipeline.Sale) {
	r.t.Helper()
	for _, p := range sale.Partitions {
		must(r.t, r.rdb.XTrimMaxLen(r.t.Context(), r.keys.Orders(p), 0).Err())
	}
}

// TestBadWebhooks: what does not prove to come from the provider is refused, counted, and leaves no trace in the
// stores; what does, and fits no order, is answered with the reason, recorded as refused, and changes nothing else.
func TestBadWebhooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale, other := r.create(pricedSale("drop-1", 10)), r.create(pricedSale("drop-2", 10))
	ann, bob := r.place("drop-1", "ann", ""), r.place("drop-1", "bob", "")
	cat := r.place("drop-2", "cat", "")
	r.persist(sale)
	r.persist(other)
	r.empty(sale)
	r.empty(other)
	good, now := paymentOf(ann, nil), time.Now()
	before := r.written()
	const forgedSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	for _, test := range []struct {
		name    string
		call    call
		status  int
		code    string
		counted string
		says    string
	}{
		{"forged", signed("m", good, forgedSecret, now), 401, "invalid-signature", "forged", "not that of this body"},
		{
			"another body", delivery("m", good).body1(paymentOf(bob, nil)), 401, "invalid-signature", "forged",
			"not that of this body",
		},
		{"a byte more", delivery("m", good).body1(good + " "), 401, "invalid-signature", "forged", "not that of this body"},
		{
			"another id", delivery("m", good).with("webhook-id", "n"), 401, "invalid-signature", "forged",
			"not that of this body",
		},
		{
			"another time", delivery("m", good).with("webhook-timestamp", strconv.FormatInt(now.Unix()-9, 10)), 401,
			"invalid-signature", "forged", "not that of this body",
		},
		{"another version", delivery("m", good).with("webhook-signature",
			strings.Replace(delivery("m", good).header.Get("webhook-signature"), "v1,", "v2,",
				1)), 401, "invalid-signature", "forged", "not that"},
		{
			"no signature", delivery("m", good).with("webhook-signature", ""), 401, "invalid-signature", "forged",
			"send the headers",
		},
		{"no id", delivery("m", good).with("webhook-id", ""), 401, "invalid-signature", "forged", "send the headers"},
		{
			"no time", delivery("m", good).with("webhook-timestamp", ""), 401, "invalid-signature", "forged",
			"send the headers",
		},
		{
			"time in words", delivery("m", good).with("webhook-timestamp", "now"), 401, "invalid-signature", "forged",
			"number of seconds",
		},
		{"no body", delivery("m", good).body1(""), 401, "invalid-signature", "forged", "not that of this body"},
		{
			"stale", signed("m", good, webhookSecret, now.Add(-6*time.Minute)), 401, "invalid-signature", "stale",
			"5 minutes ago",
		},
		{
			"from the future", signed("m", good, webhookSecret, now.Add(6*time.Minute)), 401, "invalid-signature", "stale",
			"5 minutes ahead",
		},
		{"oversized", delivery("m", good+strings.Repeat(" ", 65536)), 413, "too-large", "oversized", "65536 bytes"},
		{
			"oversized and forged", signed("m", strings.Repeat("[", 1<<20), forgedSecret, now), 413, "too-large", "oversized",
			"65536 bytes",
		},
	} {
		counted := r.counted(test.counted)
		got := r.expect(test.call, test.status, test.code)
		if !strings.Contains(got.problem().Detail, test.says) || r.counted(test.counted) != counted+1 {
			t.Errorf("%s: got %s, counted %v; want %q, and %s counted", test.name, got.body, r.counted(test.counted)-counted,
				test.says, test.counted)
		}
		if test.status == 401 && got.header.Get("Www-Authenticate") == "" {
			t.Errorf("%s: no challenge", test.name)
		}
	}
	r.paid(delivery("msg_other", `{"type":"payment.failed","data":7}`), 200, "ignored", "", "")
	if after := r.written(); !maps.Equal(after, before) {
		t.Error("what was not verified, or not about a payment, changed a store")
	}

	with := func(name string, value any) string {
		return paymentOf(ann, map[string]any{name: value, "payment_id": "pay_" + name + fmt.Sprint(len(fmt.Sprint(value)))})
	}
	paymentID := func(value any) string { return paymentOf(ann, map[string]any{"payment_id": value}) }
	for i, test := range []struct {
		body   string
		status int
		code   string
		says   string
	}{
		{"", 400, "invalid-request", "not valid JSON"},
		{"{", 400, "invalid-request", "not valid JSON"},
		{"[]", 400, "invalid-request", "JSON object"},
		{"{}", 400, "invalid-request", "type: it is missing"},
		{`{"type":7}`, 400, "invalid-request", "type: it must be a string"},
		{`{"type":"payment.succeeded"}`, 400, "invalid-request", "data: it is missing"},
		{`{"type":"payment.succeeded","data":null}`, 400, "invalid-request", "data"},
		{`{"type":"payment.succeeded","data":[]}`, 400, "invalid-request", "data: it must be a JSON object"},
		{`{"type":"payment.succeeded","data":{},"data":{}}`, 400, "invalid-request", "twice"},
		{"{\"type\":\"payment.succeeded\xff\"}", 400, "invalid-request", "UTF-8"},
		{with("amount", -1), 400, "invalid-request", "amount: -1 is not from 1"},
		{with("amount", 0), 400, "invalid-request", "amount: 0"},
		{with("amount", 1_000_000_000_001), 400, "invalid-request", "amount: 1000000000001 is not from 1"},
		{with("amount", json.RawMessage("99999999999999999999")), 400, "invalid-request", "amount: it must be an integer"},
		{with("amount", 19.99), 400, "invalid-request", "amount: it must be an integer"},
		{with("amount", json.RawMessage("1999.0")), 400, "invalid-request", "amount: it must be an integer"},
		{with("amount", "1999"), 400, "invalid-request", "amount: it must be an integer"},
		{with("amount", nil), 400, "invalid-request", "amount: it is missing"},
		{with("currency", nil), 400, "invalid-request", "currency: it is missing"},
		{with("currency", ""), 400, "invalid-request", "currency"},
		{with("currency", "eur"), 400, "invalid-request", "currency: use three capital letters"},
		{with("currency", "EURO"), 400, "invalid-request", "currency"},
		{with("order_id", "17"), 400, "invalid-request", "order_id: order ids are UUIDs"},
		{with("order_id", "{"+ann.OrderID+"}"), 400, "invalid-request", "order_id"},
		{with("order_id", "urn:uuid:"+ann.OrderID), 400, "invalid-request", "order_id"},
		{with("order_id", "\x00"+ann.OrderID+"\x00"), 400, "invalid-request", "order_id"},
		{with("order_id", nil), 400, "invalid-request", "order_id: it is missing"},
		{with("sale_id", "Drop 1"), 400, "invalid-request", "sale_id"},
		{with("sale_id", "a\x00b"), 400, "invalid-request", "sale_id"},
		{with("user_id", "a{b}\x00"), 400, "invalid-request", "user_id"},
		{paymentID(""), 400, "invalid-request", "payment_id: use 1 to 255"},
		{paymentID(strings.Repeat("p", 256)), 400, "invalid-request", "payment_id"},
		{paymentID("pay 1\x00"), 400, "invalid-request", "payment_id"},
		{paymentID(nil), 400, "invalid-request", "payment_id: it is missing"},
		{with("sale_id", "drop-9"), 404, "unknown-sale", "drop-9"},
		{with("order_id", uuid.Must(uuid.NewV7()).String()), 404, "unknown-order", "no such order"},
		{with("order_id", uuid.Nil.String()), 404, "unknown-order", "no such order"},
		{with("order_id", cat.OrderID), 404, "unknown-order", "no such order"},
		{with("sale_id", "drop-2"), 404, "unknown-order", "no such order"},
		{with("user_id", "bob"), 404, "unknown-order", "no such order"},
		{with("amount", 1998), 422, "amount-mismatch", "costs 19.99 EUR, and 19.98 EUR"},
		{with("amount", 1_000_000_000_000), 422, "amount-mismatch", "costs 19.99 EUR"},
		{with("currency", "USD"), 422, "amount-mismatch", "19.99 USD"},
	} {
		message := delivery(fmt.Sprint("msg_", i), test.body)
		refused := r.counted("refused")
		got := r.expect(message, test.status, test.code)
		if p := got.problem(); !strings.Contains(p.Detail, test.says) {
			t.Errorf("%s: got %q, want %q", test.body, p.Detail, test.says)
		}
		list, err := r.store.Payments(t.Context(), payments.Filter{Outcome: payments.Refused})
		must(t, err)
		if len(list) != i+1 || list[i].WebhookID != fmt.Sprint("msg_", i) || list[i].Detail == "" ||
			r.counted("refused") != refused+1 {
			t.Fatalf("%s: %d are recorded as refused, want %d and this one last", test.body, len(list), i+1)
		}
		again := r.expect(message, test.status, test.code)
		if again.problem().Detail != got.problem().Detail {
			t.Errorf("%s: again it is %q, not %q", test.body, again.problem().Detail, got.problem().Detail)
		}
	}
	after := r.written()
	delete(after, "postgres payments")
	delete(before, "postgres payments")
	if !maps.Equal(after, before) {
		t.Error("a refused payment changed something besides its record")
	}
	// The same payment, reported correctly, is accepted.
	r.paid(delivery("msg_right", good), 200, "paid", "", "paid")
	if log := r.logs.String(); strings.Contains(log, "MfKQ9r8") {
		t.Error("the secret is in the log")
	}
}

// body1 returns the call with another body and the signature of the first one.
func (c call) body1(body string) call {
	c.body = body
	return c
}

// TestPaymentsAndEndings: a payment pays an order once; money that comes later is to be paid back; a webhook that is
// repeated gets the same answer, byte by byte; and what is paid can't be cancelled.
func TestPaymentsAndEndings(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { // a secret that is being replaced
		d.WebhookSecrets = secretsOf(t, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", webhookSecret)
	}})
	sale := r.create(pricedSale("drop-1", 10))
	ann, bob, cat := r.place("drop-1", "ann", `{"quantity":3}`), r.place("drop-1", "bob", ""), r.place("drop-1", "cat", "")
	r.persist(sale)
	r.empty(sale)
	path := func(o receipt) string { return "/v1/sales/drop-1/orders/" + o.OrderID }

	first := r.paid(delivery("msg_1", paymentOf(ann, map[string]any{"user_id": "ann"})), 200, "paid", "", "paid")
	for range 3 {
		again := r.paid(delivery("msg_1", paymentOf(ann, nil)), 200, "paid", "", "paid")
		if string(again.body) != string(first.body) {
			t.Errorf("again: got %s, want %s", again.body, first.body)
		}
	}
	r.paid(delivery("msg_2", paymentOf(ann, nil)), 200, "repeated", "", "paid")
	r.paid(delivery("msg_3", paymentOf(ann, map[string]any{"payment_id": "pay_b"})), 200, "refund_due",
		"already-paid", "paid")
	if got := r.expect(cancel(path(ann), "ann"), 409,
		"not-cancellable").problem(); got.Detail != "the order is paid and can't be cancelled" {
		t.Errorf("cancel: got %q", got.Detail)
	}
	if got := decode[orderView](t, r.expect(get(path(ann), "ann"), 200, "")); got.Status != "paid" {
		t.Errorf("got %+v", got)
	}

	r.expect(cancel(path(bob), "bob"), 200, "")
	late := delivery("msg_4", paymentOf(bob, nil))
	r.paid(late, 200, "refund_due", "order-ended", "refund_due")
	r.paid(late, 200, "refund_due", "order-ended", "refund_due")
	r.exec(`update orders set pay_by = now() - interval '1 s' where user_id = 'cat'`)
	if expired, err := r.store.ExpireOrders(t.Context(), 1); err != nil || len(expired) != 1 {
		t.Fatalf("expire: %v, %v", expired, err)
	}
	r.paid(delivery("msg_5", paymentOf(cat, nil)), 200, "refund_due", "order-ended", "refund_due")
	r.expect(cancel(path(cat), "cat"), 409, "not-cancellable")
	for outcome, want := range map[string]float64{"paid": 1, "replayed": 4, "repeated": 1, "refund_due": 3} {
		if got := r.counted(outcome); got != want {
			t.Errorf("%s: counted %v, want %v", outcome, got, want)
		}
	}
}

// TestPaymentOfAQueuedOrder: a payment that comes before its order is stored waits for it, also when Redis can't be
// asked about it; and it is refused once the order can't come any more.
func TestPaymentOfAQueuedOrder(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	r := newRig(t, rigOptions{redisURL: server.URL()})
	sale := r.create(pricedSale("drop-1", 10))
	ann := r.place("drop-1", "ann", "")
	early := delivery("msg_1", paymentOf(ann, nil))
	r.paid(early, 202, "waiting", "", "queued")
	r.paid(early, 202, "waiting", "", "queued")
	ofNoOrder := func(id string) call {
		return delivery(id, paymentOf(receipt{SaleID: "drop-1", OrderID: uuid.Must(uuid.NewV7()).String(), Quantity: 1}, nil))
	}
	second, third := ofNoOrder("msg_2"), ofNoOrder("msg_3")
	r.paid(second, 202, "waiting", "", "queued")
	must(t, server.Pause())
	r.paid(third, 202, "waiting", "", "queued")
	must(t, server.Resume())
	must(t, r.payments.DecideWaitingPayments(t.Context()))
	r.paid(early, 202, "waiting", "", "queued") // the event is in the stream, and so are its contemporaries
	r.persist(sale)
	must(t, r.payments.DecideWaitingPayments(t.Context()))
	r.paid(early, 200, "paid", "", "paid")
	r.paid(second, 202, "waiting", "", "queued")
	r.empty(sale)
	must(t, r.payments.DecideWaitingPayments(t.Context()))
	r.expect(second, 404, "unknown-order")
	r.expect(third, 404, "unknown-order")
	r.expect(delivery("msg_4", paymentOf(receipt{SaleID: "drop-1", OrderID: uuid.Must(uuid.NewV7()).String(), Quantity: 1},
		nil)), 404, "unknown-order")
}
