package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// TestUnpaidUnitsGoToOthers: with the jobs of a worker, orders that are not paid expire, their units are bought by others,
// and the books stay exact all the way.
func TestUnpaidUnitsGoToOthers(t *testing.T) {
	t.Parallel()
	const units = 40
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: units, PaymentWindow: time.Second}})
	news := r.notifier()
	r.startWorker(r.store, pipeline.WorkerOptions{},
		pipeline.NewExpirer(r.store, news, r.metrics.Lifecycle, r.log).Job(),
		pipeline.NewReleaser(r.rdb, r.keys, r.store, r.handOvers(), r.metrics.Lifecycle, r.log).Job())
	for round := range 3 {
		for i := range units {
			user := fmt.Sprintf("buyer-%d-%d", round, i)
			testkit.Eventually(t, settleLimit, "a unit is on sale for "+user, func() bool {
				decision, err := r.try(pipeline.OrderRequest{UserID: user, Quantity: 1})
				if err == nil && decision.Result != pipeline.AdmissionAccepted && decision.Result != pipeline.AdmissionSoldOut {
					t.Errorf("order of %s: got %s", user, decision.Result)
				}
				return err == nil && decision.Result == pipeline.AdmissionAccepted
			})
		}
		report, err := r.auditor.Audit(r.ctx(), r.sale)
		if err != nil || !report.Clean() {
			t.Fatalf("audit: %+v, %v", report, err)
		}
	}
	testkit.Eventually(t, settleLimit, "everything has expired", func() bool { return r.stock(r.sale) == units })
	r.settled()
	r.balanced(r.sale, 0)
	// What is committed, or given back, is counted a moment later.
	testkit.Eventually(t, settleLimit, "all that has expired is counted", func() bool {
		return r.count("sluice_orders_expired_total") >= 3*units
	})
	if got := r.count("sluice_orders_expired_total"); got != 3*units {
		t.Errorf("expired: got %v, want %d", got, 3*units)
	}
	testkit.Eventually(t, settleLimit, "all that was given back is counted", func() bool {
		return r.count("sluice_stock_released_total") == 3*units
	})
}

// TestCancelRaces: a buyer who cancels while the order is on its way, and again and again, gets the unit back on sale once.
func TestCancelRaces(t *testing.T) {
	t.Parallel()
	const buyers = 20
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: buyers, PaymentWindow: time.Hour}})
	news := r.notifier()
	canceller := pipeline.NewCanceller(pipeline.NewLookup(r.rdb, r.keys, r.store), r.store, news, r.metrics.Lifecycle)
	r.startWorker(r.store, pipeline.WorkerOptions{}, pipeline.NewReleaser(r.rdb, r.keys, r.store, r.handOvers(), r.metrics.Lifecycle, r.log).Job())
	receipts := r.admitMany("buyer", buyers)
	together(3*buyers, func(i int) {
		buyer := i % buyers
		cancel := func() (pipeline.Order, error) {
			return canceller.Cancel(r.ctx(), r.sale, fmt.Sprintf("buyer-%d", buyer), receipts[buyer].OrderID)
		}
		order, err := cancel()
		for until := time.Now().Add(settleLimit); busy(err) && time.Now().Before(until); {
			order, err = cancel()
		}
		if err != nil || order.Status != pipeline.StatusCancelled {
			t.Errorf("cancel: %s, %v", order.Status, err)
		}
	})
	cancelled := time.Now()
	testkit.Eventually(t, settleLimit, "every unit is back", func() bool { return r.stock(r.sale) == buyers })
	t.Logf("all units were on sale again %s after the last cancellation", time.Since(cancelled).Round(time.Millisecond))
	r.balanced(r.sale, 0)
	if got := r.count("sluice_orders_cancelled_total"); got != buyers {
		t.Errorf("cancelled: got %v, want %d", got, buyers)
	}
}

// TestReleasesPassThoseThatRedisCannotTake: a sale that Redis does not hold keeps no unit of another one from coming back,
// however many releases are owed to it and although it comes first.
func TestReleasesPassThoseThatRedisCannotTake(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 10, PaymentWindow: time.Hour}})
	receipt := r.admit("ann", 1)
	r.startWorker(r.store, pipeline.WorkerOptions{}) // gives nothing back
	r.settled()
	if _, _, err := r.store.CancelOrder(r.ctx(), r.sale.ID, receipt.OrderID, "ann"); err != nil {
		t.Fatal(err)
	}
	const stuck = 2*lua.MaxReleaseBatch + 1
	for _, sale := range []string{"-a", "-b"} { // before every sale that can be
		if _, err := r.raw.Exec(r.ctx(), `
			insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
			select $1, gen_random_uuid(), n, 'user-' || n, 1, 0, 'expired' from generate_series(1, $2::integer) n`, sale, stuck); err != nil {
			t.Fatal(err)
		}
	}
	err := r.releaser().Apply(r.ctx())
	wantKind(t, err, pipeline.KindNotLoaded)
	for _, sale := range []string{"-a", "-b"} {
		if !strings.Contains(err.Error(), "sale "+sale+" can't") {
			t.Errorf("got %v, want it to tell of sale %s", err, sale)
		}
	}
	if got := r.stock(r.sale); got != 10 {
		t.Errorf("%d units are in stock, want all 10", got)
	}
}
