package sales_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"sluice/db"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
	"sluice/pipeline/waitlist"
)

const retention = 7 * 24 * time.Hour

// retire runs the job once, as some worker does every minute.
func retire(r *pipelinetest.Rig) {
	r.Helper()
	if err := sales.NewRetirer(r.Redis, r.Keys, r.WorkerStore(), retention, r.Logger).Job().Run(r.Ctx()); err != nil {
		r.Fatal(err)
	}
}

// watch lets a worker look for what Redis has lost.
func watch(r *pipelinetest.Rig) {
	r.Helper()
	if err := recovery.NewVerifier(r.VerifierConfig()).Job().Run(r.Ctx()); err != nil {
		r.Fatal(err)
	}
}

// traces are the keys that Redis has of a sale, of whatever kind.
func traces(r *pipelinetest.Rig, saleID string) (found []string) {
	r.Helper()
	keys, err := r.Redis.Keys(r.Ctx(), r.Keys.Prefix+":*").Result()
	if err != nil {
		r.Fatal(err)
	}
	for _, key := range keys {
		if strings.HasSuffix(key, ":"+saleID) {
			found = append(found, key)
		}
	}
	return found
}

// byPostgres audits a sale that has left Redis.
func byPostgres(r *pipelinetest.Rig) *audit.Report {
	r.Helper()
	r.Sale = r.Stored(r.Sale.ID)
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.PostgresAlone || !report.Exact || !report.Clean() || r.Sale.RetiredAt.IsZero() {
		r.Fatalf("got %+v, %v, want it clean by Postgres alone", report, err)
	}
	if found := traces(r, r.Sale.ID); len(found) > 0 {
		r.Fatalf("Redis has %q", found)
	}
	return report
}

// A sale with orders in every status leaves Redis without a trace. Its orders live on: they are paid, returned and
// refunded, and its books stay right. Nothing brings it back, and buyers are told that it is over.
func TestASaleLeavesRedis(t *testing.T) {
	t.Parallel()
	c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
	c.Over(c.Sale.ID)
	retire(c.Rig)
	if len(traces(c.Rig, c.Sale.ID)) == 0 {
		t.Fatal("it left although orders await their payment")
	}
	bob, joy := c.Orders["bob"], c.Orders["joy"]
	paid, err := c.Payments().Pay(c.Ctx(), pipelinetest.PaymentFor(&bob, 0))
	if err != nil || paid.Outcome != payments.Paid {
		t.Fatalf("%+v, %v", paid, err)
	}
	c.End(joy.OrderID)
	retire(c.Rig)
	if len(traces(c.Rig, c.Sale.ID)) == 0 {
		t.Fatal("it left although it owes Redis units")
	}
	if err := c.Releaser().Apply(c.Ctx()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		retire(c.Rig)
		if got := byPostgres(c.Rig); got.Live != 2 || got.Orders != 9 {
			t.Fatalf("got %+v", got)
		}
	}

	returner := lifecycle.NewReturner(c.Store, c.Notifier(), c.Metrics.Lifecycle)
	back, err := returner.Return(c.Ctx(), lifecycle.Return{
		SaleID: c.Sale.ID, OrderID: bob.OrderID, Restock: true, Actor: "test", Reason: "late",
	})
	if err != nil || back.Status != pipeline.StatusReturned {
		t.Fatalf("return: %+v, %v", back, err)
	}
	if got, err := c.Payments().Pay(c.Ctx(), pipelinetest.PaymentFor(&joy, 0)); err != nil ||
		got.Outcome != payments.RefundDue {
		t.Fatalf("a late payment: %+v, %v", got, err)
	}
	refund := payments.Refund{RefundID: "re_bob", PaymentID: "pay_" + bob.OrderID, Actor: "test"}
	if got, err := c.Store.RecordRefund(c.Ctx(), refund); err != nil || got.Refund.Outcome != payments.Refunded {
		t.Fatalf("refund: %+v, %v", got, err)
	}
	if err := c.Releaser().Apply(c.Ctx()); err != nil {
		t.Fatal(err)
	}
	watch(c.Rig)
	c.Ensure()
	if err := publishBehind(c.Rig); err != nil {
		t.Fatal(err)
	}
	if got := byPostgres(c.Rig); got.Live != 1 {
		t.Fatalf("got %+v, want ann's unit only", got)
	}

	for _, user := range []string{"ann", "zoe"} {
		if got, err := c.Try(pipeline.OrderRequest{UserID: user, Quantity: 1, IdempotencyKey: "k"}); err != nil ||
			got.Result != "closed" {
			t.Errorf("an order of %s: got %+v, %v, want it closed", user, got, err)
		}
	}
	join, err := c.Waitlist().Join(c.Ctx(), c.Sale, pipeline.OrderRequest{UserID: "zoe", Quantity: 1})
	if err != nil || join.Result != waitlist.Closed {
		t.Errorf("a join: got %+v, %v, want it closed", join, err)
	}
	mine, err := lifecycle.NewLookup(c.Redis, c.Keys, c.Store).Mine(c.Ctx(), c.Sale, "ann")
	if err != nil || mine.Status != pipeline.StatusPaid {
		t.Errorf("ann's order: got %+v, %v", mine, err)
	}
	_, err = recovery.NewVerifier(c.VerifierConfig()).Rebuild(c.Ctx(), c.Sale.ID, "test", true)
	pipelinetest.WantKind(t, err, pipeline.KindConflict)
}

// retirable is a rig whose sale is over, with sold orders and a waitlist.
func retirable(t *testing.T) *pipelinetest.Rig {
	t.Helper()
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{Total: 3, Waitlist: 9, Partitions: []pipeline.Partition{2, 0}},
	})
	for user, n := 0, 0; n < 3; user++ {
		got, err := r.Try(pipeline.OrderRequest{
			UserID: string(rune('a' + user)), Quantity: 1, IdempotencyKey: "k",
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Result == "accepted" {
			n++
		}
	}
	r.Persist(r.Events(r.Sale)...)
	for _, user := range []string{"yan", "zoe"} {
		r.Joins(r.Waitlist(), user, 1)
	}
	r.Over(r.Sale.ID)
	return r
}

// A process that dies between the decision and the removal leaves a sale that counts as gone; the next run ends it.
// What it owes meanwhile needs no Redis.
func TestADeadRetirementIsEnded(t *testing.T) {
	t.Parallel()
	r := retirable(t)
	if ids, err := r.Store.RetireSales(r.Ctx(), retention, 10); err != nil || len(ids) != 1 {
		t.Fatalf("retired %q, %v", ids, err)
	}
	half := *r.Sale
	half.Partitions = half.Partitions[:1]
	r.Vanish(&half) // as the script does on one partition
	watch(r)
	if err := publishBehind(r); err != nil {
		t.Fatal(err)
	}
	order, err := r.Store.LatestOrder(r.Ctx(), r.Sale.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := r.Store.CancelOrder(r.Ctx(), r.Sale.ID, order.ID, "a"); err != nil || !changed {
		t.Fatalf("cancel: %v, %v", changed, err)
	}
	if err := r.Releaser().Apply(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	retire(r)
	if got := byPostgres(r); got.Live != 2 || got.InFlight != 0 {
		t.Errorf("got %+v, want two orders, and nobody served from the waitlist", got)
	}
}

// An older state of Redis that has the sale is cleared of it after its verification.
func TestAnOlderRedisIsClearedAgain(t *testing.T) {
	t.Parallel()
	r := retirable(t)
	dumps := map[string]string{}
	for _, key := range traces(r, r.Sale.ID) {
		dump, err := r.Redis.Dump(r.Ctx(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		dumps[key] = dump
	}
	retire(r)
	byPostgres(r)
	for key, dump := range dumps {
		if err := r.Redis.Restore(r.Ctx(), key, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Redis.Del(r.Ctx(), r.Keys.Trusted(0), r.Keys.Trusted(2)).Err(); err != nil {
		t.Fatal(err)
	}
	r.Ensure()
	report, err := r.Auditor.Audit(r.Ctx(), r.Stored(r.Sale.ID))
	if err != nil || !report.PostgresAlone || !report.Clean() {
		t.Errorf("meanwhile: got %+v, %v", report, err)
	}
	retire(r)
	byPostgres(r)
}

// A sale whose window an operator moves comes back whole, with its buyers and its waitlist, and a removal that is late
// leaves it alone.
func TestARescheduledSaleComesBack(t *testing.T) {
	t.Parallel()
	r := retirable(t)
	retire(r)
	byPostgres(r)
	retired := r.Stored(r.Sale.ID)
	closes := time.Now().Add(time.Hour)
	_, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{ClosesAt: &closes})
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded) // the change stands, and a worker brings it to Redis
	watch(r)
	retire(r)
	late := &lateStore{r.Store, retired}
	if err := sales.NewRetirer(r.Redis, r.Keys, late, retention, r.Logger).Job().Run(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	report, err := r.Auditor.Audit(r.Ctx(), r.Stored(r.Sale.ID))
	if err != nil || report.PostgresAlone || !report.Clean() || report.Buyers != 3 || report.Waiting != 2 {
		t.Errorf("got %+v, %v, want it back as it was", report, err)
	}
	if got, err := r.Try(pipeline.OrderRequest{UserID: "a", Quantity: 1, IdempotencyKey: "k"}); err != nil ||
		got.Result != "replayed" {
		t.Errorf("a's key: got %+v, %v, want its order", got, err)
	}
}

// lateStore has read a sale as retired that is not any more.
type lateStore struct {
	*db.Store
	sale *pipeline.Sale
}

func (s *lateStore) SalesToClear(context.Context, pipeline.Generation, int) ([]*pipeline.Sale, error) {
	return []*pipeline.Sale{s.sale}, nil
}

// A sale that Redis never had is not put there once it is retired, whatever is changed about it.
func TestARetiredSaleIsNotLoaded(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	r.Sale = pipelinetest.UsualSale(pipeline.Sale{Partitions: []pipeline.Partition{1}})
	if err := r.Store.CreateSale(r.Ctx(), r.Sale); err != nil {
		t.Fatal(err)
	}
	r.Over(r.Sale.ID)
	retire(r)
	note := "nobody came"
	if _, err := r.Publisher.Change(r.Ctx(), r.Sale.ID, "test", pipeline.SaleChange{Note: &note}); err != nil {
		t.Fatal(err)
	}
	byPostgres(r)
}
