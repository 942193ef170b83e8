package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/worker"
)

// TestUnpaidUnitsGoToOthers: with the jobs of a worker, orders that are not paid expire, their units are bought by
// others, and the audit is exact after each round.
func TestUnpaidUnitsGoToOthers(t *testing.T) {
	t.Parallel()
	const units = 40
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: units, PaymentWindow: time.Second}})
	notifier := r.Notifier()
	r.StartWorker(r.Store, worker.Options{},
		lifecycle.NewExpirer(r.WorkerStore(), notifier, r.Metrics.Lifecycle, r.Logger).Job(),
		lifecycle.NewReleaser(r.Redis, r.Keys, r.WorkerStore(), r.HandOvers(), r.Metrics.Lifecycle, r.Logger).Job())
	for round := range 3 {
		for i := range units {
			user := fmt.Sprintf("buyer-%d-%d", round, i)
			testkit.Eventually(t, pipelinetest.SettleLimit, "a unit is on sale for "+user, func() bool {
				decision, err := r.Try(pipeline.OrderRequest{UserID: user, Quantity: 1})
				if err == nil && decision.Result != admission.Accepted && decision.Result != admission.SoldOut {
					t.Errorf("order of %s: got %s", user, decision.Result)
				}
				return err == nil && decision.Result == admission.Accepted
			})
		}
		report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
		if err != nil || !report.Clean() {
			t.Fatalf("audit: %+v, %v", report, err)
		}
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "everything has expired", func() bool {
		return r.Stock(r.Sale) == units
	})
	r.Settled()
	r.Balanced(r.Sale, 0)
	// What is committed, or given back, is counted a moment later.
	testkit.Eventually(t, pipelinetest.SettleLimit, "all that has expired is counted", func() bool {
		return r.Count("sluice_orders_expired_total") >= 3*units
	})
	if got := r.Count("sluice_orders_expired_total"); got != 3*units {
		t.Errorf("expired: got %v, want %d", got, 3*units)
	}
	testkit.Eventually(t, pipelinetest.SettleLimit, "all that was given back is counted", func() bool {
		return r.Count("sluice_stock_released_total") == 3*units
	})
}

// TestCancelRaces: a buyer who cancels while the order is on its way, and again and again, gets the unit back on sale
// once.
func TestCancelRaces(t *testing.T) {
	t.Parallel()
	const buyers = 20
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: buyers, PaymentWindow: time.Hour}})
	notifier := r.Notifier()
	canceller := lifecycle.NewCanceller(
		lifecycle.NewLookup(r.Redis, r.Keys, r.Store), r.Store, notifier, r.Metrics.Lifecycle,
	)
	r.StartWorker(
		r.Store, worker.Options{},
		lifecycle.NewReleaser(r.Redis, r.Keys, r.WorkerStore(), r.HandOvers(), r.Metrics.Lifecycle, r.Logger).Job(),
	)
	receipts := r.AdmitMany("buyer", buyers)
	pipelinetest.Together(3*buyers, func(i int) {
		buyer := i % buyers
		cancel := func() (pipeline.Order, error) {
			return canceller.Cancel(r.Ctx(), r.Sale, fmt.Sprintf("buyer-%d", buyer), receipts[buyer].OrderID)
		}
		order, err := cancel()
		for until := time.Now().Add(pipelinetest.SettleLimit); pipelinetest.Busy(err) && time.Now().Before(until); {
			order, err = cancel()
		}
		if err != nil || order.Status != pipeline.StatusCancelled {
			t.Errorf("cancel: %s, %v", order.Status, err)
		}
	})
	cancelled := time.Now()
	testkit.Eventually(t, pipelinetest.SettleLimit, "every unit is back", func() bool { return r.Stock(r.Sale) == buyers })
	t.Logf("all units were on sale again %s after the last cancellation", time.Since(cancelled).Round(time.Millisecond))
	r.Balanced(r.Sale, 0)
	if got := r.Count("sluice_orders_cancelled_total"); got != buyers {
		t.Errorf("cancelled: got %v, want %d", got, buyers)
	}
}

// TestReleasesSkipThoseThatRedisCannotTake: a sale that Redis does not have keeps no unit of another one from coming
// back, however many releases are owed to it and although it comes first.
func TestReleasesSkipThoseThatRedisCannotTake(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 10, PaymentWindow: time.Hour}})
	receipt := r.Admit("ann", 1)
	r.StartWorker(r.Store, worker.Options{}) // gives nothing back
	r.Settled()
	if _, _, err := r.Store.CancelOrder(r.Ctx(), r.Sale.ID, receipt.OrderID, "ann"); err != nil {
		t.Fatal(err)
	}
	const stuck = 2*lua.MaxReleaseBatch + 1
	for _, sale := range []string{"-a", "-b"} { // before every sale that can be
		if _, err := r.SQL.Exec(r.Ctx(), `
			insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
			select $1, gen_random_uuid(), n, 'user-' || n, 1, 0, 'expired'
			from generate_series(1, $2::integer) n`, sale, stuck); err != nil {
			t.Fatal(err)
		}
	}
	err := r.Releaser().Apply(r.Ctx())
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
	for _, sale := range []string{"-a", "-b"} {
		if !strings.Contains(err.Error(), "sale "+sale+" can't") {
			t.Errorf("got %v, want it to name sale %s", err, sale)
		}
	}
	if got := r.Stock(r.Sale); got != 10 {
		t.Errorf("%d units are in stock, want all 10", got)
	}
}
