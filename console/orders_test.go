package console_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/operator"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
)

func (r *rig) eventually(what string, condition func() bool) {
	r.Helper()
	testkit.Eventually(r.T, pipelinetest.CallLimit, what, condition)
}

// pay pays an order, as a provider does.
func (r *rig) pay(orderID string) {
	r.Helper()
	paid, err := r.Payments().Pay(r.Ctx(), payments.Payment{
		WebhookID: "msg-" + orderID, PaymentID: "pay-" + orderID, SaleID: "drop-1", OrderID: orderID, Actor: payments.WebhookActor,
	})
	must(r, err)
	if paid.Outcome != payments.Paid && paid.Outcome != payments.RefundDue {
		r.Fatalf("pay: got %+v", paid)
	}
}

// TestOrdersAreFoundByAnyID: by what a buyer, a receipt or a provider says, and before they are stored.
func TestOrdersAreFoundByAnyID(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	b := r.as("ann", operator.Read)
	receipt := r.Admit("buyer-1", 1)
	page := salePath + "/orders/" + receipt.OrderID
	find := func(text string) string {
		t.Helper()
		return b.get("/console/orders?q=" + url.QueryEscape(text)).location
	}
	if got := find(strings.ToUpper(receipt.OrderID)); got != page {
		t.Errorf("a queued order: got %q", got)
	}
	r.Persist(r.Events(r.Sale)...)
	r.pay(receipt.OrderID)
	for _, id := range []string{
		receipt.OrderID, strconv.FormatInt(receipt.Number, 10), "buyer-1", "pay-" + receipt.OrderID, "  buyer-1 ",
	} {
		if got := find(id); got != page {
			t.Errorf("%q: got %q, want %q", id, got, page)
		}
	}
	const nobodys = "01990000-0000-7000-8000-000000000001"
	for _, id := range []string{"buyer-2", "1", nobodys, "a b", "{x}", strings.Repeat("a", 250)} {
		b.want(http.StatusOK, b.get("/console/orders?q="+url.QueryEscape(id)), "Nothing has this")
	}
	r.Sale = r.CreateSale(pipeline.Sale{ID: "drop-2", PaymentWindow: time.Hour})
	again := r.Admit("buyer-1", 1)
	r.Persist(r.Events(r.Sale)...)
	b.want(http.StatusOK, b.get("/console/orders?q=buyer-1"), "2 found", strconv.FormatInt(again.Number, 10), "buyer")
	b.want(http.StatusOK, b.get("/console/orders?status=awaiting_payment&sale=drop-2"), strconv.FormatInt(again.Number, 10))
	b.want(http.StatusBadRequest, b.get("/console/orders?status=eaten"))
	b.want(http.StatusBadRequest, b.get("/console/orders?after=nowhere"))
}

// TestWhyAnOrderIsWhereItIs: the timeline has each step with its reason, and what comes next.
func TestWhyAnOrderIsWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{
		Total: 1, PaymentWindow: time.Hour, UnitPrice: 1999, Currency: "EUR", Waitlist: 10,
	}})
	b := r.as("ann", operator.Operate)
	page := func(orderID string, says ...string) {
		t.Helper()
		b.want(http.StatusOK, b.get(salePath+"/orders/"+orderID), says...)
	}
	receipt := r.Admit("buyer-1", 1)
	page(receipt.OrderID, "queued", "no worker has fetched it yet", "Asked for", "Accepted by Redis",
		"Accept 1 of the sale", "next To be stored in Postgres", "19.99 EUR", "holds it")
	waiting := r.Joins(r.Waitlist(), "buyer-2", 1)
	page(waiting.Entry.OrderID, "waiting", "on the waitlist", "Ticket 1", "next To be ordered")
	r.Persist(r.Events(r.Sale)...)
	page(receipt.OrderID, "awaiting payment", "It waits for its payment, for 59 min", "Stored in Postgres",
		"after the accept", "next To be paid by", "no: settled")
	r.End(receipt.OrderID)
	page(receipt.OrderID, "Its units", "Ended: ", "next 1 unit to go back on sale")
	r.pay(receipt.OrderID)
	page(receipt.OrderID, "refund due", "Money came for it after it had ended", "Payment refund due",
		"next To be paid back", "Order ended", "by webhook", "Ended: expired", "and was not")
	r.Work() // gives the unit back, and so to the waitlist
	page(receipt.OrderID, "1 unit back on sale", "free, or another order's")
	r.eventually("the order of the waitlist", func() bool {
		return strings.Contains(textOf(b.get(salePath+"/orders/"+waiting.Entry.OrderID).body), "next on the waitlist")
	})
	page(waiting.Entry.OrderID, "Joined the waitlist", "this buyer was next on the waitlist", "holds it")
	b.want(http.StatusNotFound, b.get(salePath+"/orders/01990000-0000-7000-8000-000000000001"), "has no order")
	b.want(http.StatusNotFound, b.get(salePath+"/orders/x"))
	if statuses := len(pipeline.Transitions); statuses != 8 {
		t.Errorf("there are transitions from %d statuses: does the page explain the new one?", statuses)
	}
}
