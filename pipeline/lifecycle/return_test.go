package lifecycle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
)

// returnRig is a sale in which some buyers have paid for one unit each.
type returnRig struct {
	*pipelinetest.Rig
	returner *lifecycle.Returner
	receipts map[string]admission.Receipt
}

func newReturnRig(t *testing.T, total int64, buyers ...string) *returnRig {
	t.Helper()
	r := &returnRig{
		Rig: pipelinetest.New(t, pipelinetest.Options{
			RedisURL: testkit.PrivateRedis(t).URL(), // one that a test may flush
			Sale:     pipeline.Sale{Total: total, PaymentWindow: time.Hour, UnitPrice: 500, Currency: "EUR"},
		}),
		receipts: map[string]admission.Receipt{},
	}
	r.returner = lifecycle.NewReturner(r.Store, r.Notifier(), r.Metrics.Lifecycle)
	for _, buyer := range buyers {
		r.receipts[buyer] = r.Admit(buyer, 1)
	}
	events := r.Events(r.Sale)
	r.Persist(events...)
	r.Forget(events...)
	for _, buyer := range buyers {
		receipt := r.receipts[buyer]
		got, err := r.Payments().Pay(r.Ctx(), pipelinetest.PaymentFor(&receipt, 0))
		if err != nil || got.Outcome != payments.Paid {
			t.Fatalf("pay for %s: %+v, %v", buyer, got, err)
		}
	}
	return r
}

func (r *returnRig) takeBack(buyer string, restock bool) (pipeline.Order, error) {
	return r.returner.Return(r.Ctx(), lifecycle.Return{
		SaleID: r.Sale.ID, OrderID: r.receipts[buyer].OrderID, Restock: restock, Actor: "ann@shop", Reason: "broken",
	})
}

// balanced audits the sale, in both ways in which it can be.
func (r *returnRig) balanced(stock, live, withdrawn int64) {
	r.Helper()
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Exact || !report.Clean() || report.Drift != 0 || report.Stock != stock ||
		report.Live != live || report.Withdrawn != withdrawn {
		r.Fatalf("audit: %+v, %v; want stock %d, live %d, withdrawn %d", report, err, stock, live, withdrawn)
	}
	balancer := audit.NewBalancer(r.Redis, r.Keys, r.Store, r.Auditor)
	counters, err := r.Auditor.Counters(r.Ctx(), r.Sale)
	if err != nil {
		r.Fatal(err)
	}
	backlog, err := balancer.ReadBacklog(r.Ctx(), r.Sale.Partitions)
	if err != nil {
		r.Fatal(err)
	}
	if drift, err := balancer.Check(r.Ctx(), r.Sale, counters, backlog); err != nil || !drift.Exact || drift.Units != 0 {
		r.Fatalf("the quick check: %+v, %v, want no drift", drift, err)
	}
}

// Returned units go on sale again, or are withdrawn, as chosen, exactly once; the books balance before and after the
// release, and after a rebuild of what Redis has lost. The buyer may order again.
func TestReturnedUnits(t *testing.T) {
	t.Parallel()
	r := newReturnRig(t, 3, "ann", "bob")
	r.balanced(1, 2, 0)
	for range 2 { // again changes nothing, whatever it says of the units
		order, err := r.takeBack("ann", false)
		if err != nil || order.Status != pipeline.StatusReturned || order.ClosedAt.IsZero() {
			t.Fatalf("return: %+v, %v", order, err)
		}
		r.balanced(1, 1, 1)
	}
	for range 2 {
		if err := r.Releaser().Apply(r.Ctx()); err != nil {
			t.Fatal(err)
		}
		r.balanced(1, 1, 1)
	}
	if _, err := r.takeBack("ann", true); err != nil {
		t.Fatal(err)
	}
	r.balanced(1, 1, 1)
	if _, err := r.takeBack("bob", true); err != nil {
		t.Fatal(err)
	}
	if latest, err := r.Store.LatestOrder(r.Ctx(), r.Sale.ID, "bob"); err != nil || latest.Status != pipeline.StatusReturned {
		t.Errorf("bob's latest order: %+v, %v", latest, err)
	}
	r.balanced(1, 0, 1)
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.balanced(2, 0, 1)
	r.Flush()
	r.Ensure()
	r.balanced(2, 0, 1)
	for _, buyer := range []string{"ann", "cat"} { // two of three units are left to sell
		r.Admit(buyer, 1)
	}
	decision, err := r.Try(pipeline.OrderRequest{UserID: "dan", Quantity: 1})
	if err != nil || decision.Result != admission.SoldOut {
		t.Errorf("a withdrawn unit is sold: %+v, %v", decision, err)
	}
	if got := r.Count("sluice_orders_returned_total"); got != 2 {
		t.Errorf("counted %v returned orders, want 2", got)
	}
}

// A returned order's payment is due for refund, and once it is back, the order is refunded. What is not paid can't be
// returned.
func TestReturnedMoney(t *testing.T) {
	t.Parallel()
	r := newReturnRig(t, 3, "ann", "bob")
	if _, err := r.takeBack("ann", true); err != nil {
		t.Fatal(err)
	}
	due, err := r.Store.Payments(r.Ctx(), payments.Filter{Outcome: payments.RefundDue})
	if err != nil || len(due) != 1 || due[0].OrderID != r.receipts["ann"].OrderID ||
		due[0].Reason != payments.ReasonOrderReturned || due[0].Amount != 500 {
		t.Fatalf("due for refund: %+v, %v", due, err)
	}
	record, err := r.Payments().Refunded(r.Ctx(), payments.Refund{RefundID: "re_1", Payment: due[0].ID, Actor: "ann@shop"})
	if err != nil || record.Refund.Outcome != payments.Refunded || record.Order.Status != pipeline.StatusRefunded {
		t.Fatalf("refund: %+v, %v", record, err)
	}
	if got := r.Labelled("sluice_refunds_total", "outcome", "refunded"); got != 1 {
		t.Errorf("counted %v refunds", got)
	}
	if order, err := r.takeBack("ann", true); err != nil || order.Status != pipeline.StatusRefunded {
		t.Errorf("again: %+v, %v", order, err)
	}
	unpaid := r.Admit("cat", 1)
	r.Persist(r.Events(r.Sale)...)
	r.receipts["cat"] = unpaid
	_, err = r.takeBack("cat", true)
	if pipeline.KindOf(err) != pipeline.KindConflict || !strings.Contains(err.Error(), "cancel it instead") {
		t.Errorf("an order that is not paid: %v", err)
	}
	var log string
	err = r.SQL.QueryRow(r.Ctx(), `select actor || ' ' || sale_id || ' ' || detail::text from audit_log
		where action = 'return'`).Scan(&log)
	if err != nil || !strings.Contains(log, "ann@shop") || !strings.Contains(log, `"reason": "broken"`) ||
		!strings.Contains(log, `"restock": true`) || !strings.Contains(log, r.receipts["ann"].OrderID) {
		t.Errorf("the audit log: %s, %v", log, err)
	}
}

// Of many returns of one order at once exactly one counts.
func TestReturnsRace(t *testing.T) {
	t.Parallel()
	r := newReturnRig(t, 5, "ann", "bob")
	var restocked [8]bool
	pipelinetest.Together(len(restocked), func(i int) {
		restocked[i] = i%2 == 0
		if _, err := r.takeBack("ann", restocked[i]); err != nil {
			t.Errorf("return %d: %v", i, err)
		}
	})
	if !slices.Contains(restocked[:], true) {
		t.Fatal("nobody returned")
	}
	var releases, withdrawn int64
	err := r.SQL.QueryRow(r.Ctx(), `select count(*), (select withdrawn from sales) from releases`).
		Scan(&releases, &withdrawn)
	if err != nil || releases != 1 || withdrawn > 1 {
		t.Fatalf("%d releases, %d units withdrawn, %v", releases, withdrawn, err)
	}
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.balanced(4-withdrawn, 1, withdrawn)
}
