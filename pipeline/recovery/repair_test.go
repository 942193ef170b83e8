package recovery_test

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
	"sluice/pipeline/admission"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/worker"
)

// repairer is one more process that repairs.
func repairer(r *pipelinetest.Rig) *recovery.Repairer {
	verifier := recovery.NewVerifier(r.VerifierConfig())
	return recovery.NewRepairer(r.Store, r.Auditor, verifier, r.Burier(), r.Logger)
}

// repair repairs a sale and expects no error.
func repair(r *pipelinetest.Rig, apply bool) recovery.RepairReport {
	r.Helper()
	report, err := repairer(r).Repair(r.Ctx(), r.Sale.ID, "ann", apply)
	if err != nil {
		r.Fatalf("repair: %v", err)
	}
	return report
}

// auditLines counts the lines of the audit log about the sale.
func auditLines(r *pipelinetest.Rig, actor, action string) (n int) {
	r.Helper()
	err := r.SQL.QueryRow(r.Ctx(), `select count(*) from audit_log where sale_id = $1 and actor = $2 and action = $3`,
		r.Sale.ID, actor, action).Scan(&n)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func planned(reports []pipeline.RebuildReport) string {
	var lines []string
	for _, r := range reports {
		lines = append(lines, fmt.Sprintf(
			"%s: stock %d to %d, accepted %d to %d, orders %d, slots %d, missing %d", r.Partition, r.StockBefore,
			r.StockAfter, r.AcceptedBefore, r.AcceptedAfter, r.Live+r.InFlight, r.Slots, r.Missing))
	}
	return strings.Join(lines, "\n")
}

// Everything that Redis and Postgres disagree about is repaired, in Redis: the plan changes nothing and says what the
// repair then does, every unit is where Postgres and the stream say, and the audit log has it. What is wrong in
// Postgres alone is still found afterwards.
func TestEveryTamperingIsRepaired(t *testing.T) {
	t.Parallel()
	for _, test := range pipelinetest.Tamperings {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
			b := r.BusySale("drop-1")
			test.Tamper(b)
			before := r.Dump(r.Sale)
			plan := repair(r, false)
			if r.Dump(r.Sale) != before || auditLines(r, "ann", "repair") != 0 || plan.Applied {
				t.Error("a plan changed something")
			}
			if !slices.ContainsFunc(plan.Found.Findings, func(finding string) bool { return !inPostgres(finding) }) {
				if len(plan.Rebuilt) != 0 {
					t.Errorf("planned %v, and Redis is not what is wrong", plan.Rebuilt)
				}
				return
			}
			done := repair(r, true)
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
			if got := auditLines(r, "ann", "repair"); got != len(r.Sale.Partitions) {
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
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	b := r.BusySale("drop-1")
	before := r.Dump(b.Sale)
	if got := repair(r, true); got.Applied || got.Rebuilt != nil || r.Dump(b.Sale) != before ||
		auditLines(r, "ann", "repair") != 0 {
		t.Errorf("got %+v, want nothing done", got)
	}
	_, err := repairer(r).Repair(r.Ctx(), "none", "ann", true)
	pipelinetest.WantKind(t, err, pipeline.KindNotFound)
	_, err = repairer(r).Repair(r.Ctx(), "drop-1", "", true)
	pipelinetest.WantKind(t, err, pipeline.KindInvalid)
	r.Lose(b.Sale)
	_, err = repairer(r).Repair(r.Ctx(), "drop-1", "ann", true)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
}

// An accept whose event was deleted is kept: its buyer got a 202, and the slot still says what for. An order that has
// ended is not kept: its units are leaked, and go back.
func TestARepairKeepsAnAnsweredAccept(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{PaymentWindow: time.Hour}})
	accepted := r.Admit("ann", 3)
	r.Forget(r.Events(r.Sale)...)
	ended := r.Admit("bob", 2)
	r.Persist(r.Events(r.Sale)...)
	r.End(ended.OrderID)
	r.Applied(ended.OrderID) // and yet nothing was given back
	report := repair(r, true)
	if report.Kept != 1 || !report.Left.Clean() || report.Left.Stock != 97 || report.Left.Live != 3 {
		t.Errorf("got %d kept, left %+v", report.Kept, report.Left)
	}
	order, err := r.Store.Order(r.Ctx(), r.Sale.ID, accepted.OrderID)
	if err != nil || order.Status != pipeline.StatusAwaitingPayment || order.Number != accepted.Number ||
		order.UserID != "ann" || order.Quantity != 3 {
		t.Errorf("ann's order: got %+v, %v, want the one of her receipt", order, err)
	}
	if slots := r.Slots(r.Sale); len(slots) != 1 || slots["ann"].OrderID != accepted.OrderID {
		t.Errorf("got slots %v, want ann's", slots)
	}
	if got := r.Labelled("sluice_stock_repaired_total", "direction", "raised"); got != 2 {
		t.Errorf("the metric says that %v units were given back, want 2", got)
	}
}

// An accept that is only left in a slot, and can't stand, is rejected with a letter; both the audit and the letter say
// so.
func TestARepairRejectsWhatCannotStand(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL()})
	first := r.Admit("ann", 3)
	r.Persist(r.Events(r.Sale)...)
	p := r.Sale.Partitions[0]
	other := lua.Slot{
		OrderID: uuid.Must(uuid.NewV7()).String(), Quantity: 2, Number: first.Number + 1, AcceptedMS: 1, Sequence: 2,
	}
	if err := r.Redis.HSet(r.Ctx(), r.Keys.Buyers(p, r.Sale.ID), "ann", other.String()).Err(); err != nil {
		t.Fatal(err)
	}
	report := repair(r, true)
	order, err := r.Store.Order(r.Ctx(), r.Sale.ID, other.OrderID)
	if err != nil || order.Status != pipeline.StatusRejected {
		t.Errorf("the other order: got %+v, %v, want it rejected", order, err)
	}
	if left := report.Left; !left.Clean() || left.Rejected != 1 || left.Letters != 1 || left.Rebuilds != 1 ||
		len(left.Notes()) != 3 {
		t.Errorf("left: %+v, notes %q, want the rejected order reported", left, left.Notes())
	}
	if got := r.Slots(r.Sale)["ann"]; got.OrderID != first.OrderID {
		t.Errorf("ann's slot: got %+v, want her live order", got)
	}
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	r.Balanced(r.Sale, 3)
}

// A repair that dies at any step is finished by the next one, and does nothing twice.
func TestARepairThatDies(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL()})
	r.AdmitMany("buyer", 20)
	r.Forget(r.Events(r.Sale)[:10]...) // ten are left in their slots only
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(r.Sale.Partitions[0], r.Sale.ID), "stock", 7).Err(); err != nil {
		t.Fatal(err)
	}
	for n := range 25 { // each dies a little later than the one before
		limit := 5500*time.Millisecond + time.Duration(n)*5*time.Millisecond // the looks of the audit come first
		ctx, cancel := context.WithTimeout(r.Ctx(), limit)
		_, _ = repairer(r).Repair(ctx, r.Sale.ID, "ann", true)
		cancel()
		if r.Rows(r.Sale.ID) == 10 {
			break
		}
	}
	r.Ensure() // as every api does
	if report := repair(r, true); report.Found.Exact && report.Found.Clean() {
		t.Logf("the last one that died had done its work")
	}
	r.WorkAll()
	r.Balanced(r.Sale, 20)
	if got := r.Letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// Buyers order all the time while the sale is repaired: they wait, none is refused for good, and the books balance.
func TestARepairWhileBuyersOrder(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{Total: 1 << 30}})
	r.StartWorker(r.Store, worker.Options{})
	ctx, stop := context.WithCancel(r.Ctx())
	var buyers sync.WaitGroup
	var mu sync.Mutex // protects accepted
	accepted := 0
	for b := range 3 {
		buyers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				got, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d-%d", b, n), Quantity: 1})
				switch {
				case err == nil && got.Result == admission.Accepted:
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
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(r.Sale.Partitions[0], r.Sale.ID), "stock", 50).Err(); err != nil {
		t.Fatal(err)
	}
	report := repair(r, true)
	stop()
	buyers.Wait()
	if report.Found.Drift != -50 || !report.Left.Exact || !report.Left.Clean() || report.Kept != 0 {
		t.Errorf("found %+v, left %+v, kept %d", report.Found, report.Left, report.Kept)
	}
	r.Settled()
	r.Balanced(r.Sale, int64(accepted))
	if got := r.Letters(); len(got) != 0 {
		t.Errorf("got letters %v", got)
	}
}

// Every sale is rebuilt in one go, each partition once.
func TestEverySaleIsRebuilt(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
	for i, partitions := range [][]pipeline.Partition{{0}, {0, 2}, {3}} {
		r.Sale = r.CreateSale(pipeline.Sale{ID: fmt.Sprintf("drop-%d", i), Partitions: partitions})
		r.AdmitMany("buyer", 5+i)
		r.Persist(r.Events(r.Sale)[:3]...)
	}
	r.Flush()
	verifier := recovery.NewVerifier(r.VerifierConfig())
	plan, err := verifier.RebuildAll(r.Ctx(), "ann", false)
	if err != nil || len(plan) != 4 {
		t.Fatalf("got %+v, %v, want four shares of three sales", plan, err)
	}
	if keys := r.Redis.DBSize(r.Ctx()).Val(); keys != 0 {
		t.Errorf("a plan left %d keys", keys)
	}
	done, err := verifier.RebuildAll(r.Ctx(), "ann", true)
	if err != nil || planned(done) != planned(plan) {
		t.Errorf("got %v,\n%s\nplanned was\n%s", err, planned(done), planned(plan))
	}
	for i := range 3 {
		r.Sale = r.Stored(fmt.Sprintf("drop-%d", i))
		r.Balanced(r.Sale, 3)
		if auditLines(r, "ann", "rebuild") != len(r.Sale.Partitions) {
			t.Errorf("%s: the audit log does not have a line for each partition", r.Sale.ID)
		}
	}
}

// Postgres was restored to an earlier state, so that only slots know of some orders, and an operator rebuilds before a
// repair. The slots stay, and the repair that follows persists their orders.
func TestARebuildBeforeTheRepair(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{
		RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{Total: 60, MaxQuantity: 1},
	})
	receipts := r.AdmitMany("buyer", 60)
	r.WorkAll()
	r.Exec(30, `delete from orders where sequence > 30`)
	r.Exec(1, `update watermarks set seq = 30`)
	r.Exec(1, `update sales set sold = 30`)
	verifier := recovery.NewVerifier(r.VerifierConfig())
	plan, err := verifier.Rebuild(r.Ctx(), r.Sale.ID, "ann", false)
	if err != nil {
		t.Fatal(err)
	}
	done, err := verifier.Rebuild(r.Ctx(), r.Sale.ID, "ann", true)
	if err != nil {
		t.Fatal(err)
	}
	if planned(plan) != planned(done) {
		t.Errorf("planned:\n%s\ndone:\n%s", planned(plan), planned(done))
	}
	if got, err := r.Try(pipeline.OrderRequest{UserID: "newcomer", Quantity: 1}); err != nil ||
		got.Result != admission.SoldOut {
		t.Errorf("a newcomer got %q, %v, want sold-out", got.Result, err)
	}
	if report := repair(r, true); report.Kept != 30 {
		t.Errorf("kept %d, want 30", report.Kept)
	}
	r.WorkAll()
	for _, receipt := range receipts {
		if order, err := r.Store.Order(r.Ctx(), r.Sale.ID, receipt.OrderID); err != nil ||
			order.Status == pipeline.StatusRejected {
			t.Fatalf("order %s: got %s (%s), %v, letters %v", receipt.OrderID, order.Status, order.Reason, err, r.Letters())
		}
	}
	r.Balanced(r.Sale, 60)
}
