package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/retry"
	"sluice/pipeline/sales"
)

const (
	// reconcilerName is the name of the lock in Postgres by which reconcilers exclude each other.
	reconcilerName = "reconciler"
	// reconcileTick is how old stock and drift in the metrics may be.
	reconcileTick = 5 * time.Second
	// reconcileTerm is how long a process stays elected before it asks Postgres again: should its connection have died
	// unnoticed, two processes export the same metrics for that long.
	reconcileTerm = time.Minute
	// reconcileSales bounds the sales that are watched, and with them the metrics' labels: those that are open or opened
	// last.
	reconcileSales = 100
	// driftLooks is how often a sale is looked at before its drift is believed, with a pause before each further look.
	driftLooks = 5
	driftPause = 100 * time.Millisecond
	// auditEvery is the time between two audits of buyers. The sale whose last audit is the longest ago comes first.
	auditEvery = time.Minute
	// auditShare bounds the time spent on audits to a hundredth, so that big sales are audited more rarely.
	auditShare = 100
	// reconcileSlots is the largest sale whose buyers are audited automatically: while that lasts, a second or, if buyers
	// order, five, the units of no sale are checked. Bigger ones are left to sluice audit.
	reconcileSlots = 200_000
	// lowerEvery is how often a sale that sells units twice is repaired automatically.
	lowerEvery = 10 * time.Minute
)

// ReconcilerStore is what a Reconciler needs of Postgres.
type ReconcilerStore interface {
	RepairStore
	audit.BalanceSource
	CountUnresolvedLetters(ctx context.Context) (int64, error)
}

// Reconciler compares Redis with Postgres while a sale is running: the units of every sale every few seconds, the
// buyers of one sale after the other more rarely. Every worker runs one, Postgres elects the one that works, and only
// that one exports its metrics. A unit that is too many, and could be sold twice, is taken out of stock at once (see
// Repairer); anything else that is wrong is logged and left to an operator.
type Reconciler struct {
	ReconcilerConfig
	auditor  *audit.Auditor
	repairer *Repairer
	balancer *audit.Balancer

	exported  map[string]bool      // sales with metrics
	drifting  map[string]int64     // the drift of a sale that was logged last, so that each is logged once
	audited   map[string]time.Time // when a sale's buyers were audited last
	lowered   map[string]time.Time // when a sale was repaired automatically
	nextAudit time.Time
}

// ReconcilerConfig is what a Reconciler works with.
type ReconcilerConfig struct {
	Redis      redis.UniversalClient
	Keys       pipeline.Keys
	Store      ReconcilerStore
	Sales      *sales.Catalogue
	Partitions int      // of the installation
	Metrics    *Metrics // nil: nothing is exported
	Burier     *deadletter.Burier
	StepFailed func(step string) // counts a step that failed; nil: nothing is counted
	Log        *slog.Logger
}

// NewReconciler returns a Reconciler that has not looked yet.
func NewReconciler(c ReconcilerConfig) *Reconciler {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.StepFailed == nil {
		c.StepFailed = func(string) {}
	}
	auditor := audit.NewAuditor(c.Redis, c.Keys, c.Store)
	verifier := NewVerifier(VerifierConfig{
		Redis: c.Redis, Keys: c.Keys, Store: c.Store, Partitions: c.Partitions, Metrics: c.Metrics, Log: c.Log,
	})
	return &Reconciler{
		ReconcilerConfig: c, auditor: auditor,
		repairer: NewRepairer(c.Store, auditor, verifier, c.Burier, c.Log),
		balancer: audit.NewBalancer(c.Redis, c.Keys, c.Store, auditor),
		exported: map[string]bool{}, drifting: map[string]int64{},
		audited: map[string]time.Time{}, lowered: map[string]time.Time{},
	}
}

// Run reconciles while this process is elected, and waits to be elected otherwise, until the context ends. No error
// ends it.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		ran, err := r.Store.RunExclusively(ctx, reconcilerName, r.term)
		if err != nil && ctx.Err() == nil {
			r.stepFailed("elect", err)
		}
		if !ran || err != nil {
			r.hide()
			retry.Sleep(ctx, reconcileTick)
		}
	}
	r.hide()
}

// term looks again and again for reconcileTerm.
func (r *Reconciler) term(ctx context.Context) error {
	for until := time.Now().Add(reconcileTerm); time.Now().Before(until) && ctx.Err() == nil; {
		began := time.Now()
		if err := r.Look(ctx); err == nil {
			r.Metrics.booksChecked.WithLabelValues().SetToCurrentTime()
		} else if ctx.Err() == nil {
			r.stepFailed("look", err)
		}
		retry.Sleep(ctx, max(reconcileTick-time.Since(began), reconcileTick/10))
	}
	return ctx.Err()
}

func (r *Reconciler) stepFailed(step string, err error) {
	r.StepFailed("reconcile-" + step)
	r.Log.Warn("the books could not be checked, will be repeated", "step", step, "error", err)
}

// Look checks the units of every sale once, and the buyers of one if that is due. Its error is the last of all; an
// error does not keep the other sales from being checked.
func (r *Reconciler) Look(ctx context.Context) error {
	waiting, failed := r.Store.CountUnresolvedLetters(ctx)
	if failed == nil {
		r.Metrics.lettersWaiting.WithLabelValues().Set(float64(waiting))
	}
	sales := r.Sales.List(time.Now(), reconcileSales)
	r.forget(sales)
	drifts, err := r.drifts(ctx, sales)
	if err != nil {
		failed = err
	}
	for _, sale := range sales {
		found, ok := drifts[sale.ID]
		if !ok {
			r.hideSale(sale.ID) // better no number than an old one
			continue
		}
		r.export(sale, found)
	}
	if err := r.auditOne(ctx, sales, drifts); err != nil {
		failed = err
	}
	return failed
}

// drifts checks every sale that Redis has and is trusted with: first all of them together, then, for at most half a
// tick, one by one those that moved too much to prove anything or that seem wrong. What is on its way has arrived by
// the last look.
func (r *Reconciler) drifts(ctx context.Context, sales []*pipeline.Sale) (map[string]audit.Drift, error) {
	began, found := time.Now(), map[string]audit.Drift{}
	err := r.checkAll(ctx, sales, found)
	for look := 1; look < driftLooks && err == nil; look++ {
		for _, sale := range sales {
			d, checked := found[sale.ID]
			if !checked || d.Exact && d.Units == 0 || time.Since(began) > reconcileTick/2 {
				continue
			}
			retry.Sleep(ctx, driftPause)
			if err = r.checkAll(ctx, []*pipeline.Sale{sale}, found); err != nil {
				break
			}
		}
	}
	return found, err
}

// checkAll reads all counters, then all streams, then checks one sale after the other. A sale that Redis does not have,
// or is not trusted with, gets no drift: a Verifier rebuilds it.
func (r *Reconciler) checkAll(ctx context.Context, sales []*pipeline.Sale, found map[string]audit.Drift) error {
	counters := make(map[string]audit.PartitionCounters, len(sales))
	var loaded []*pipeline.Sale
	for _, sale := range sales {
		delete(found, sale.ID)
		trusted, err := r.trusted(ctx, sale)
		if err != nil {
			return err
		}
		if !trusted {
			continue
		}
		c, err := r.auditor.Counters(ctx, sale)
		switch {
		case pipeline.KindOf(err) == pipeline.KindNotLoaded:
			continue
		case err != nil:
			return err
		}
		counters[sale.ID], loaded = c, append(loaded, sale)
	}
	backlog, err := r.balancer.ReadBacklog(ctx, partitionsOf(loaded))
	if err != nil {
		return err
	}
	for _, sale := range loaded {
		d, err := r.balancer.Check(ctx, sale, counters[sale.ID], backlog)
		if err != nil {
			return err
		}
		found[sale.ID] = d
	}
	return nil
}

// trusted reports whether every partition of a sale is trusted.
func (r *Reconciler) trusted(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	for _, p := range sale.Partitions {
		verified, err := lua.ReadTrust(ctx, r.Redis, r.Keys.ForVerify(p, ""))
		if err != nil {
			return false, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say whether it is verified")
		}
		if verified.Trust != lua.Trusted {
			return false, nil
		}
	}
	return true, nil
}

// export publishes what is left of a sale and what it drifts by, and logs a drift that has changed.
func (r *Reconciler) export(sale *pipeline.Sale, d audit.Drift) {
	r.exported[sale.ID] = true
	r.Metrics.stockRemaining.WithLabelValues(sale.ID).Set(float64(d.Remaining))
	if !d.Exact {
		return // the last one that was proved stays in the metric
	}
	r.Metrics.stockDrift.WithLabelValues(sale.ID).Set(float64(d.Units))
	switch {
	case d.Units == r.drifting[sale.ID]:
	case d.Units == 0:
		r.Log.Info("a sale's units add up again", "sale", sale.ID)
	default:
		r.Log.Error("a sale's units do not add up; sluice audit says more",
			"sale", sale.ID, "drift", d.Units, "remaining", d.Remaining)
	}
	r.drifting[sale.ID] = d.Units
}

// forget drops the metrics and the times of sales that are not watched any more.
func (r *Reconciler) forget(watched []*pipeline.Sale) {
	isWatched := make(map[string]bool, len(watched))
	for _, sale := range watched {
		isWatched[sale.ID] = true
	}
	for id := range r.exported {
		if !isWatched[id] {
			r.hideSale(id)
		}
	}
	for id := range r.audited {
		if !isWatched[id] {
			delete(r.audited, id)
			delete(r.lowered, id)
		}
	}
}

// hideSale drops a sale's metrics.
func (r *Reconciler) hideSale(id string) {
	r.Metrics.stockRemaining.DeleteLabelValues(id)
	r.Metrics.stockDrift.DeleteLabelValues(id)
	delete(r.exported, id)
	delete(r.drifting, id)
}

// hide drops the metrics: another process exports them now.
func (r *Reconciler) hide() {
	for id := range r.exported {
		r.hideSale(id)
	}
	r.Metrics.lettersWaiting.Reset()
	r.Metrics.booksChecked.Reset()
}

// auditOne audits the buyers of a sale that drifts, or else of the one whose last audit is the longest ago, if an audit
// is due.
func (r *Reconciler) auditOne(ctx context.Context, sales []*pipeline.Sale, drifts map[string]audit.Drift) error {
	sale := r.suspect(sales, drifts)
	if sale == nil {
		return nil
	}
	early := time.Now().Before(r.nextAudit)
	if early && (drifts[sale.ID].Units >= 0 || time.Since(r.audited[sale.ID]) < auditEvery) {
		return nil
	}
	began := time.Now()
	r.audited[sale.ID] = began
	defer func() { r.nextAudit = time.Now().Add(max(auditEvery, auditShare*time.Since(began))) }()
	if small, err := r.small(ctx, sale); err != nil || !small {
		return err
	}
	report, err := r.auditor.Audit(ctx, sale)
	switch {
	case pipeline.KindOf(err) == pipeline.KindNotLoaded:
		return nil
	case err != nil:
		r.Metrics.audits.WithLabelValues("failed").Inc()
		return err
	case !report.Clean():
		r.Metrics.audits.WithLabelValues("found").Inc()
		r.Log.Error("an audit found a sale's books wrong; sluice audit --repair shows what can be repaired",
			"sale", sale.ID, "findings", report.Findings)
	case !report.Exact || report.UncheckedReceipts > 0:
		r.Metrics.audits.WithLabelValues("moving").Inc()
	default:
		r.Metrics.audits.WithLabelValues("clean").Inc()
	}
	return r.lower(ctx, sale, report)
}

// suspect chooses the sale to audit: one that sells units twice before all others.
func (r *Reconciler) suspect(sales []*pipeline.Sale, drifts map[string]audit.Drift) *pipeline.Sale {
	var chosen *pipeline.Sale
	for _, sale := range sales {
		d, checked := drifts[sale.ID]
		switch {
		case !checked:
		case d.Exact && d.Units < 0 && time.Since(r.audited[sale.ID]) > auditEvery:
			return sale // it may sell more at any moment
		case chosen == nil || r.audited[sale.ID].Before(r.audited[chosen.ID]):
			chosen = sale
		}
	}
	return chosen
}

// small reports whether a sale's buyers are few enough to be audited here.
func (r *Reconciler) small(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	var slots int64
	for _, p := range sale.Partitions {
		n, err := r.Redis.HLen(ctx, r.Keys.Buyers(p, sale.ID)).Result()
		if err != nil {
			return false, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not count the buyers")
		}
		slots += n
	}
	return slots <= reconcileSlots, nil
}

// lower repairs a sale that has units too many: to take them out of stock can't wait for an operator, and does no
// harm.
func (r *Reconciler) lower(ctx context.Context, sale *pipeline.Sale, report *audit.Report) error {
	if !report.Exact || report.Drift >= 0 || time.Since(r.lowered[sale.ID]) < lowerEvery {
		return nil
	}
	r.lowered[sale.ID] = time.Now()
	repaired, err := r.repairer.Repair(ctx, sale.ID, "sluice", true)
	if err == nil && repaired.Applied {
		r.Log.Warn("units that were too many, and could have been sold twice, were taken out of stock",
			"sale", sale.ID, "units", -repaired.Found.Drift)
	}
	return err
}
