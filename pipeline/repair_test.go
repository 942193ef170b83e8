package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// repairer is one more process that repairs.
func (r *rig) repairer() *pipeline.Repairer {
	verifier := pipeline.NewVerifier(r.verifierConfig())
	return pipeline.NewRepairer(r.store, r.auditor, verifier, r.burier(), r.log)
}

// repair repairs a sale and expects no error.
func (r *rig) repair(apply bool) pipeline.RepairReport {
	r.Helper()
	report, err := r.repairer().Repair(r.ctx(), r.sale.ID, "ann", apply)
	if err != nil {
		r.Fatalf("repair: %v", err)
	}
	return report
}

// auditLines counts the lines of the audit log about the sale.
func (r *rig) auditLines(actor, action string) (n int) {
	r.Helper()
	err := r.raw.QueryRow(r.ctx(), `select count(*) from audit_log where sale_id = $1 and actor = $2 and action = $3`, r.sale.ID, actor, action).Scan(&n)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func planned(reports []pipeline.RebuildReport) string {
	var lines []string
	for _, r := range reports {
		lines = append(lines, fmt.Sprintf("%s: stock %d to %d, accepted %d to %d, orders %d, slots %d, missing %d", r.Partition,
			r.StockBefore, r.StockAfter, r.AcceptedBefore, r.AcceptedAfter, r.Live+r.InFlight, r.Slots, r.Missing))
	}
	return strings.Join(lines, "\n")
}

// Whatever Redis and Postgres disagree about is mended, in Redis: the plan changes nothing and says what the repair then does,
// every unit is where Postgres and the stream say, and the audit log tells. What Postgres alone is wrong about stays found.
func TestEveryTamperingIsRepaired(t *testing.T) {
	t.Parallel()
	for _, test := range tamperings {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
			b := r.busySale("drop-1")
			test.tamper(b)
			before := r.dump(r.sale)
			plan := r.repair(false)
			if r.dump(r.sale) != before || r.auditLines("ann", "repair") != 0 || plan.Applied {
				t.Error("a plan changed something")
			}
			if !slices.ContainsFunc(plan.Found.Findings, func(finding string) bool { return !inPostgres(finding) }) {
				if len(plan.Rebuilt) != 0 {
					t.Errorf("planned %v, and Redis is not what is wrong", plan.Rebuilt)
				}
				return
			}
			done := r.repair(true)
			if got, want := planned(done.Rebuilt), planned(plan.Rebuilt); got != want || done.Kept != plan.Kept {
				t.Errorf("got %d kept,\n%s\nplanned was %d kept,\n%s", done.Kept, got, plan.Kept, want)
			}
			left := done.Left
			if !left.Exact || left.Drift != 0 || left.StrayBuyers != 0 || left.LostBuyers != 0 || left.Rebuilds != 3 {
				t.Errorf("left: %+v", left)
			}
			for _, finding := range left.Findings {
				if !inPostgres(finding) && left.Stock >= 0 { // less than 0 where more is sold than there is
					t.Errorf("left: %s", finding)
				}
			}
			if got := r.auditLines("ann", "repair"); got != len(r.sale.Partitions) {
				t.Errorf("got %d lines in the audit log, want one for each partition", got)
			}
		})
	}
}

// inPostgres reports whether a finding is one that no repair of Redis takes away.
func inPostgres(finding string) bool {
	return strings.Contains(finding, "units sold") || strings.Contains(finding, "units are in live orders")
}

// A healthy sale is not touched.
func TestNothingToRepair(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	b := r.busySale("drop-1")
	before := r.dump(b.sale)
	if got := r.repair(true); got.Applied || got.Rebuilt != nil || r.dump(b.sale) != before || r.auditLines("ann", "repair") != 0 {
		t.Errorf("got %+v, want nothing done", got)
	}
	_, err := r.repairer().Repair(r.ctx(), "none", "ann", true)
	wantKind(t, err, pipeline.KindNotFound)
	_, err = r.repairer().Repair(r.ctx(), "drop-1", "", true)
	wantKind(t, err, pipeline.KindInvalid)
	r.lose(b.sale)
	_, err = r.repairer().Repair(r.ctx(), "drop-1", "ann", true)
	wantKind(t, err, pipeline.KindNotLoaded)
}

// An accept whose event was deleted by somebody is kept: its buyer was told 202, and the slot still says what for. An order
// that has ended is not: its units are leaked, and go back.
func TestARepairKeepsWhatABuyerWasTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	told := r.admit("ann", 3)
	r.forget(r.events(r.sale)...)
	ended := r.admit("bob", 2)
	r.persist(r.events(r.sale)...)
	r.end(ended.OrderID)
	r.applied(ended.OrderID) // and yet nothing was given back
	report := r.repair(true)
	if report.Kept != 1 || !report.Left.Clean() || report.Left.Stock != 97 || report.Left.Live != 3 {
		t.Errorf("got %d kept, left %+v", report.Kept, report.Left)
	}
	order, err := r.store.Order(r.ctx(), r.sale.ID, told.OrderID)
	if err != nil || order.Status != pipeline.StatusAwaitingPayment || order.Number != told.Number || order.UserID != "ann" || order.Quantity != 3 {
		t.Errorf("ann's order: got %+v, %v, want the one of her receipt", order, err)
	}
	if slots := r.slots(r.sale); len(slots) != 1 || slots["ann"].OrderID != told.OrderID {
		t.Errorf("got slots %v, want ann's", slots)
	}
	if got := r.labelled("sluice_stock_repaired_total", "direction", "raised"); got != 2 {
		t.Errorf("the metric says that %v units were given back, want 2", got)
	}
}

// An accept that is only left in a slot, and can't stand, is rejected with a letter; both the audit and the letter say so.
func TestARepairRejectsWhatCannotStand(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL()})
	first := r.admit("ann", 3)
	r.persist(r.events(r.sale)...)
	p := r.sale.Partitions[0]
	other := lua.Slot{OrderID: uuid.Must(uuid.NewV7()).String(), Quantity: 2, Number: first.Number + 1, AcceptedMS: 1, Sequence: 2}
	if err := r.rdb.HSet(r.ctx(), r.keys.Buyers(p, r.sale.ID), "ann", other.String()).Err(); err != nil {
		t.Fatal(err)
	}
	report := r.repair(true)
	order, err := r.store.Order(r.ctx(), r.sale.ID, other.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected {
		t.Errorf("the other order: got %+v, %v, want it rejected", order, err)
	}
	if left := report.Left; !left.Clean() || left.Rejected != 1 || left.Letters != 1 || left.Rebuilds != 1 || len(left.Notes()) != 3 {
		t.Errorf("left: %+v, notes %q, want the rejected order told", left, left.Notes())
	}
	if got := r.slots(r.sale)["ann"]; got.OrderID != first.OrderID {
		t.Errorf("ann's slot: got %+v, want her live order", got)
	}
	if err := r.releaser().Apply(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.balanced(r.sale, 3)
}

// A repair that dies at any step is finished by the next one, and does nothing twice.
func TestARepairThatDies(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL()})
	r.admitMany("buyer", 20)
	r.forget(r.events(r.sale)[:10]...) // ten are left in their slots only
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(r.sale.Partitions[0], r.sale.ID), "stock", 7).Err(); err != nil {
		t.Fatal(err)
	}
	for n := range 25 { // each dies a little later than the one before
		ctx, cancel := context.WithTimeout(r.ctx(), 5500*time.Millisecond+time.Duration(n)*5*time.Millisecond) // the looks of the audit come first
		_, _ = r.repairer().Repair(ctx, r.sale.ID, "ann", true)
		cancel()
		if r.rows(r.sale.ID) == 10 {
			break
		}
	}
	r.ensure() // as every api does
	if report := r.repair(true); report.Found.Exact && report.Found.Clean() {
		t.Logf("the last one that died had done its work")
	}
	r.workAll()
	r.balanced(r.sale, 20)
	if got := r.letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// Buyers order all the time while the sale is repaired: they wait, none is refused for good, and the books are right.
func TestARepairWhileBuyersOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{Total: 1 << 30}})
	r.startWorker(r.store, pipeline.WorkerOptions{})
	ctx, stop := context.WithCancel(r.ctx())
	var buyers sync.WaitGroup
	var mu sync.Mutex // protects accepted
	accepted := 0
	for b := range 3 {
		buyers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				got, err := r.try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d-%d", b, n), Quantity: 1})
				switch {
				case err == nil && got.Result == pipeline.AdmissionAccepted:
					mu.Lock()
					accepted++
					mu.Unlock()
				case pipeline.KindOf(err) == pipeline.KindNotLoaded:
					time.Sleep(10 * time.Millisecond) // as Retry-After asks, but sooner
				default:
					t.Errorf("got %s, %v", got.Result, err)
					return
				}
			}
		})
	}
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(r.sale.Partitions[0], r.sale.ID), "stock", 50).Err(); err != nil {
		t.Fatal(err)
	}
	report := r.repair(true)
	stop()
	buyers.Wait()
	if report.Found.Drift != -50 || !report.Left.Exact || !report.Left.Clean() || report.Kept != 0 {
		t.Errorf("found %+v, left %+v, kept %d", report.Found, report.Left, report.Kept)
	}
	r.settled()
	r.balanced(r.sale, int64(accepted))
	if got := r.letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// Every sale is rebuilt in one go, each partition once.
func TestEverySaleIsRebuilt(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
	for i, partitions := range [][]pipeline.Partition{{0}, {0, 2}, {3}} {
		r.sale = r.createSale(pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), Partitions: partitions})
		r.admitMany("buyer", 5+i)
		r.persist(r.events(r.sale)[:3]...)
	}
	r.flush()
	verifier := pipeline.NewVerifier(r.verifierConfig())
	plan, err := verifier.RebuildAll(r.ctx(), "ann", false)
	if err != nil || len(plan) != 4 {
		t.Fatalf("got %+v, %v, want four shares of three sales", plan, err)
	}
	if keys := r.rdb.DBSize(r.ctx()).Val(); keys != 0 {
		t.Errorf("a plan left %d keys", keys)
	}
	done, err := verifier.RebuildAll(r.ctx(), "ann", true)
	if err != nil || planned(done) != planned(plan) {
		t.Errorf("got %v,\n%s\nplanned was\n%s", err, planned(done), planned(plan))
	}
	for i := range 3 {
		r.sale = r.stored(fmt.Sprintf("drop-%d", i))
		r.balanced(r.sale, 3)
		if r.auditLines("ann", "rebuild") != len(r.sale.Partitions) {
			t.Errorf("%s: the audit log does not tell of each partition", r.sale.ID)
		}
	}
}
