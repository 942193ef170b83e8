package recovery_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/metrics"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

// watch is a worker's Reconciler with metrics of its own.
type watch struct {
	*recovery.Reconciler
	rig   *pipelinetest.Rig
	sales *sales.Catalogue
}

func reconciler(r *pipelinetest.Rig) *watch {
	r.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	sales := sales.NewCatalogue(r.Store, log)
	if err := sales.Load(r.Ctx()); err != nil {
		r.Fatal(err)
	}
	own := *r
	own.Registry = prometheus.NewRegistry()
	own.Metrics = metrics.New(own.Registry)
	reconciler := recovery.NewReconciler(recovery.ReconcilerConfig{
		Redis: r.Redis, Keys: r.Keys, Store: r.Store, Sales: sales, Partitions: r.Options.Partitions,
		Metrics: own.Metrics.Recovery, Burier: own.Burier(), StepFailed: own.Metrics.Worker.StepFailed, Log: log,
	})
	return &watch{reconciler, &own, sales}
}

func (w *watch) look() {
	w.rig.Helper()
	if err := w.Look(w.rig.Ctx()); err != nil {
		w.rig.Fatalf("look: %v", err)
	}
}

// of is a sale's gauge, and whether it is there.
func (w *watch) of(metric, saleID string) (value float64, ok bool) {
	w.rig.Helper()
	families, err := w.rig.Registry.Gather()
	if err != nil {
		w.rig.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == metric && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == saleID {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

func (w *watch) wants(saleID string, remaining, drift float64) {
	w.rig.Helper()
	for metric, want := range map[string]float64{"sluice_stock_remaining": remaining, "sluice_stock_drift": drift} {
		if got, ok := w.of(metric, saleID); !ok || got != want {
			w.rig.Errorf("%s of %s: got %v (there: %t), want %v", metric, saleID, got, ok, want)
		}
	}
}

// The metrics say what is left and what is missing, for orders in every state. Missing units are given back only when
// an operator asks.
func TestStockAndDriftAreExported(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
	b := r.BusySale("drop-1")
	w := reconciler(r)
	w.look()
	w.wants("drop-1", 90, 0)
	if got := w.rig.Labelled("sluice_audits_total", "result", "clean"); got != 1 {
		t.Errorf("got %v audits of buyers, want 1", got)
	}
	b.Done(r.Redis.HIncrBy(r.Ctx(), b.SaleKey("ann"), "stock", -2))
	w.look()
	w.wants("drop-1", 88, 2)
	if auditLines(r, "sluice", "repair") != 0 || r.Stock(b.Sale) != 88 {
		t.Error("missing units were given back, and no operator has asked")
	}
	repair(r, true)
	w.look()
	w.wants("drop-1", 94, 0) // what was released is given back besides
	letter := deadletter.Message{EntryID: "1-1", Reason: deadletter.Undecodable}
	if err := r.Store.BuryEvent(r.Ctx(), letter, nil); err != nil {
		t.Fatal(err)
	}
	w.look()
	if got := w.rig.Count("sluice_dead_letters_waiting"); got != 1 {
		t.Errorf("got %v waiting letters, want 1", got)
	}
	// A sale that Redis has lost has no numbers, rather than old ones.
	r.Lose(b.Sale)
	w.look()
	if got, ok := w.of("sluice_stock_remaining", "drop-1"); ok {
		t.Errorf("got %v units left of a sale that is not there", got)
	}
}

// Units that are too many are taken out of stock automatically, and the audit log says so.
func TestUnitsSoldTwiceAreTakenOut(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL()})
	r.Admit("ann", 3)
	w := reconciler(r)
	w.look()
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(r.Sale.Partitions[0], r.Sale.ID), "stock", 40).Err(); err != nil {
		t.Fatal(err)
	}
	// The audit of a minute ago was clean: a new reconciler has made none.
	w = reconciler(r)
	w.look()
	if got := r.Stock(r.Sale); got != 97 {
		t.Errorf("got stock %d, want 97", got)
	}
	if got := auditLines(r, "sluice", "repair"); got != 1 {
		t.Errorf("got %d lines in the audit log, want 1", got)
	}
	if got := w.rig.Labelled("sluice_stock_repaired_total", "direction", "lowered"); got != 40 {
		t.Errorf("the metric says that %v units were taken out, want 40", got)
	}
	w.look()
	w.wants("drop-1", 97, 0)
}

// While orders come, are persisted and expire, nothing seems to drift; and a unit that goes missing meanwhile is seen.
func TestDriftDoesNotFlap(t *testing.T) {
	t.Parallel()
	for _, expiring := range []bool{false, true} {
		t.Run(fmt.Sprintf("expiring %t", expiring), func(t *testing.T) {
			t.Parallel()
			const seed, looks = 20261121, 40
			r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{
				Total: 1 << 30, Partitions: []pipeline.Partition{2, 0}, PaymentWindow: time.Hour,
			}})
			m := r.OpenMarket(seed, expiring)
			testkit.Eventually(t, pipelinetest.CallLimit, "the market to move", func() bool { return m.Accepted.Load() > 100 })
			w := reconciler(r)
			exact := 0
			for i := range looks {
				units, proved, err := w.Drift(r.Ctx(), r.Sale)
				if err != nil {
					t.Fatal(err)
				}
				if proved {
					exact++
				}
				if proved && units != 0 {
					t.Fatalf("look %d, seed %d: got a drift of %d", i, seed, units)
				}
			}
			if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(2, r.Sale.ID), "stock", -1).Err(); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, pipelinetest.CallLimit, "the missing unit to be seen", func() bool {
				units, proved, err := w.Drift(r.Ctx(), r.Sale)
				return err == nil && proved && units == 1
			})
			m.Close()
			t.Logf("%d orders, %d given back, %d of %d checks exact", m.Accepted.Load(), m.Released.Load(), exact, looks)
		})
	}
}

// Behind a backlog that is too long to be read, nothing is said; what is left is.
func TestNoDriftBehindALongBacklog(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t,
		pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), Sale: pipeline.Sale{Total: 1 << 20}})
	const orders = audit.MaxBacklogEvents + 1
	for n := 0; n < orders; n += 1000 {
		r.AdmitMany(fmt.Sprint("buyer-", n), min(1000, orders-n))
	}
	if _, proved, err := reconciler(r).Drift(r.Ctx(), r.Sale); err != nil || proved {
		t.Errorf("got proved %t, %v, want nothing proved", proved, err)
	}
	w := reconciler(r)
	w.look()
	if got, ok := w.of("sluice_stock_remaining", "drop-1"); !ok || got != 1<<20-orders {
		t.Errorf("got %v left (there: %t), want %d", got, ok, 1<<20-orders)
	}
	if got, ok := w.of("sluice_stock_drift", "drop-1"); ok {
		t.Errorf("got a drift of %v, want none exported", got)
	}
}

// There are never more labels than sales that are watched, and those of long ago are gone.
func TestSalesOfLongAgoAreNotShown(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL(), NoSale: true})
	for i := range recovery.ReconcileSales + 5 {
		r.CreateSale(pipeline.Sale{ID: fmt.Sprintf("drop-%d", i)})
	}
	w := reconciler(r)
	w.look()
	if got := w.rig.Count("sluice_stock_remaining"); got != 100*recovery.ReconcileSales {
		t.Errorf("got %v units exported over all sales, want those of %d sales", got, recovery.ReconcileSales)
	}
	r.Exec(recovery.ReconcileSales+2, `
		update sales set opens_at = now() - interval '9 days', closes_at = now() - interval '2 days', updated_at = now()
		where id not in ('drop-7', 'drop-8', 'drop-9')`)
	if err := w.sales.Load(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	w.look()
	if got := w.rig.Count("sluice_stock_remaining"); got != 300 {
		t.Errorf("got %v units exported over all sales, want those of 3 sales", got)
	}
}

// One of all workers watches. When it ends, another takes over, and no metric of the first one is left.
func TestOneReconcilerAtATime(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{RedisURL: testkit.PrivateRedis(t).URL()})
	watches := []*watch{reconciler(r), reconciler(r), reconciler(r)}
	stops := make([]func(), len(watches))
	for i, w := range watches {
		ctx, stop := context.WithCancel(r.Ctx())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		stops[i] = func() {
			stop()
			<-done
		}
		t.Cleanup(stops[i])
	}
	showing := func() (all []int) {
		for i, w := range watches {
			if _, ok := w.of("sluice_stock_drift", "drop-1"); ok {
				all = append(all, i)
			}
		}
		return all
	}
	var first int
	testkit.Eventually(t, pipelinetest.CallLimit, "one to watch", func() bool {
		all := showing()
		if len(all) > 1 {
			t.Fatalf("%d watch at once", len(all))
		}
		if len(all) == 1 {
			first = all[0]
		}
		return len(all) == 1
	})
	stops[first]()
	testkit.Eventually(t, pipelinetest.CallLimit, "another to watch", func() bool {
		all := showing()
		return len(all) == 1 && all[0] != first
	})
}
