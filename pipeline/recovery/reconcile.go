package recovery

import (
	"context"
	"log/slog"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/retry"
	"sluice/pipeline/sales"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

const (
	// reconcilerName is what reconciles exclude each other by.
	reconcilerName = "reconciler"
	// reconcileTick is how old stock and Drift in the metrics may be.
	reconcileTick = 5 * time.Second
	// reconcileTerm is how long one process is the reconcile before it asks Postgres again: should its connection have died
	// unnoticed, two processes export the same metrics for so long.
	reconcileTerm = time.Minute
	// reconcileSales bounds the sales that are watched, and with them the metrics' labels: those that are open or opened last.
	reconcileSales = 100
	// driftLooks is how often a sale is looked at before its drift is believed, with a pause before each further look.
	driftLooks = 5
	driftPause = 100 * time.Millisecond
	// auditEvery is how long after one audit of the buyers the next one begins, of the sale that was not audited for longest …
	auditEvery = time.Minute
	// … and auditShare bounds them as a part of the time, so that big sales are audited more rarely: a hundredth.
	auditShare = 100
	// reconcileSlots is the largest sale whose buyers are audited without being asked: the audit keeps them in memory, some 600
	// bytes each. Bigger ones are left to sluice audit.
	reconcileSlots = 200_000
	// lowerEvery is how often a sale that sells units twice is mended without being asked.
	lowerEvery = 10 * time.Minute
)

// ReconcilerStore is what a reconcile needs of Postgres.
type ReconcilerStore interface {
	RepairStore
	audit.BalanceSource
	CountUnresolvedLetters(ctx context.Context) (int64, error)
}

// Reconciler watches over the books while they are written: the units of every sale every few seconds, the buyers of one sale after
// the other more rarely. Every worker runs one, Postgres elects the one that works, and only that one exports its metrics. A
// unit that is sold twice is taken out of stock at once (see Repairer); whatever else is wrong is told, and left to an operator.
type Reconciler struct {
	ReconcilerConfig
	auditor  *audit.Auditor
	repairer *Repairer
	balancer *audit.Balancer

	shown     map[string]bool      // sales with metrics
	drifting  map[string]int64     // what was told of a sale's drift, so that it is told once
	audited   map[string]time.Time // when a sale's buyers were audited last
	lowered   map[string]time.Time // when a sale was mended without being asked
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
		shown:    map[string]bool{}, drifting: map[string]int64{}, audited: map[string]time.Time{}, lowered: map[string]time.Time{},
	}
}

// Run reconciles where this process is elected, or waits to be, until the context ends. No error ends it.
func (s *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		ran, err := s.Store.RunExclusively(ctx, reconcilerName, s.term)
		if err != nil && ctx.Err() == nil {
			s.stepFailed("elect", err)
		}
		if !ran || err != nil {
			s.hide()
			retry.Sleep(ctx, reconcileTick)
		}
	}
	s.hide()
}

// term looks after the books for a while.
func (s *Reconciler) term(ctx context.Context) error {
	for until := time.Now().Add(reconcileTerm); time.Now().Before(until) && ctx.Err() == nil; {
		began := time.Now()
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			s.stepFailed("look", err)
		}
		retry.Sleep(ctx, max(reconcileTick-time.Since(began), reconcileTick/10))
	}
	return ctx.Err()
}

func (s *Reconciler) stepFailed(step string, err error) {
	s.StepFailed("reconcile-" + step)
	s.Log.Warn("the books could not be looked at, will be repeated", "step", step, "error", err)
}

// Look looks at every sale once, and at the buyers of one if that is due. Its error is the last that was met; it keeps no sale
// from being looked at.
func (s *Reconciler) Look(ctx context.Context) error {
	waiting, failed := s.Store.CountUnresolvedLetters(ctx)
	if failed == nil {
		s.Metrics.lettersWaiting.WithLabelValues().Set(float64(waiting))
	}
	sales := s.Sales.List(time.Now(), reconcileSales)
	s.forget(sales)
	drifts, err := s.drifts(ctx, sales)
	if err != nil {
		failed = err
	}
	for _, sale := range sales {
		found, ok := drifts[sale.ID]
		if !ok {
			s.hideSale(sale.ID) // better no number than an old one
			continue
		}
		s.show(sale, found)
	}
	if err := s.auditOne(ctx, sales, drifts); err != nil {
		failed = err
	}
	return failed
}

// drifts checks every sale that Redis is trusted to hold: all of them together, and then those alone, for as long as half a tick,
// that moved too much to prove anything or that seem wrong. What is on its way has arrived by the last look.
func (s *Reconciler) drifts(ctx context.Context, sales []*pipeline.Sale) (map[string]audit.Drift, error) {
	began, found := time.Now(), map[string]audit.Drift{}
	err := s.checkAll(ctx, sales, found)
	for look := 1; look < driftLooks && err == nil; look++ {
		for _, sale := range sales {
			d, held := found[sale.ID]
			if !held || d.Exact && d.Units == 0 || time.Since(began) > reconcileTick/2 {
				continue
			}
			retry.Sleep(ctx, driftPause)
			if err = s.checkAll(ctx, []*pipeline.Sale{sale}, found); err != nil {
				break
			}
		}
	}
	return found, err
}

// checkAll reads all counters, then all streams, then checks one sale after the other. A sale that Redis does not hold, or is not
// trusted to, has no drift: it has to be rebuilt, and is.
func (s *Reconciler) checkAll(ctx context.Context, sales []*pipeline.Sale, found map[string]audit.Drift) error {
	counters := make(map[string]audit.PartitionCounters, len(sales))
	var held []*pipeline.Sale
	for _, sale := range sales {
		delete(found, sale.ID)
		trusted, err := s.trusted(ctx, sale)
		if err != nil {
			return err
		}
		if !trusted {
			continue
		}
		c, err := s.auditor.Counters(ctx, sale)
		switch {
		case pipeline.KindOf(err) == pipeline.KindNotLoaded:
			continue
		case err != nil:
			return err
		}
		counters[sale.ID], held = c, append(held, sale)
	}
	waiting, err := s.balancer.ReadBacklog(ctx, partitionsOf(held))
	if err != nil {
		return err
	}
	for _, sale := range held {
		d, err := s.balancer.Check(ctx, sale, counters[sale.ID], waiting)
		if err != nil {
			return err
		}
		found[sale.ID] = d
	}
	return nil
}

func (s *Reconciler) trusted(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	for _, p := range sale.Partitions {
		state, _, err := lua.ReadTrust(ctx, s.Redis, s.Keys.Look(p))
		if err != nil {
			return false, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell whether it is verified")
		}
		if state != lua.Trusted {
			return false, nil
		}
	}
	return true, nil
}

func (s *Reconciler) show(sale *pipeline.Sale, d audit.Drift) {
	s.shown[sale.ID] = true
	s.Metrics.stockRemaining.WithLabelValues(sale.ID).Set(float64(d.Remaining))
	if !d.Exact {
		return // the last that is known stays
	}
	s.Metrics.stockDrift.WithLabelValues(sale.ID).Set(float64(d.Units))
	switch {
	case d.Units == s.drifting[sale.ID]:
	case d.Units == 0:
		s.Log.Info("a sale's units add up again", "sale", sale.ID)
	default:
		s.Log.Error("a sale's units do not add up; sluice audit tells more", "sale", sale.ID, "drift", d.Units, "remaining", d.Remaining)
	}
	s.drifting[sale.ID] = d.Units
}

// forget drops what is known of sales that are not watched any more.
func (s *Reconciler) forget(watched []*pipeline.Sale) {
	still := make(map[string]bool, len(watched))
	for _, sale := range watched {
		still[sale.ID] = true
	}
	for id := range s.shown {
		if !still[id] {
			s.hideSale(id)
		}
	}
	for id := range s.audited {
		if !still[id] {
			delete(s.audited, id)
			delete(s.lowered, id)
		}
	}
}

func (s *Reconciler) hideSale(id string) {
	s.Metrics.stockRemaining.DeleteLabelValues(id)
	s.Metrics.stockDrift.DeleteLabelValues(id)
	delete(s.shown, id)
	delete(s.drifting, id)
}

// hide drops the metrics: another process exports them now.
func (s *Reconciler) hide() {
	for id := range s.shown {
		s.hideSale(id)
	}
	s.Metrics.lettersWaiting.Reset()
}

// auditOne audits the buyers of a sale that drifts, or else of the one that was not audited for longest, if an audit is due.
func (s *Reconciler) auditOne(ctx context.Context, sales []*pipeline.Sale, drifts map[string]audit.Drift) error {
	sale := s.suspect(sales, drifts)
	if sale == nil || time.Now().Before(s.nextAudit) && (drifts[sale.ID].Units >= 0 || time.Since(s.audited[sale.ID]) < auditEvery) {
		return nil
	}
	began := time.Now()
	s.audited[sale.ID] = began
	defer func() { s.nextAudit = time.Now().Add(max(auditEvery, auditShare*time.Since(began))) }()
	if small, err := s.small(ctx, sale); err != nil || !small {
		return err
	}
	report, err := s.auditor.Audit(ctx, sale)
	switch {
	case pipeline.KindOf(err) == pipeline.KindNotLoaded:
		return nil
	case err != nil:
		s.Metrics.audits.WithLabelValues("failed").Inc()
		return err
	case !report.Clean():
		s.Metrics.audits.WithLabelValues("found").Inc()
		s.Log.Error("an audit found a sale's books wrong; sluice audit --repair shows what can be mended", "sale", sale.ID, "findings", report.Findings)
	case !report.Exact:
		s.Metrics.audits.WithLabelValues("moving").Inc()
	default:
		s.Metrics.audits.WithLabelValues("clean").Inc()
	}
	return s.lower(ctx, sale, report)
}

// suspect chooses the sale to audit.
func (s *Reconciler) suspect(sales []*pipeline.Sale, drifts map[string]audit.Drift) *pipeline.Sale {
	var chosen *pipeline.Sale
	for _, sale := range sales {
		d, held := drifts[sale.ID]
		switch {
		case !held:
		case d.Exact && d.Units < 0 && time.Since(s.audited[sale.ID]) > auditEvery:
			return sale // more is sold every moment
		case chosen == nil || s.audited[sale.ID].Before(s.audited[chosen.ID]):
			chosen = sale
		}
	}
	return chosen
}

// small reports whether a sale's buyers fit into the memory that an audit may take here.
func (s *Reconciler) small(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	var slots int64
	for _, p := range sale.Partitions {
		n, err := s.Redis.HLen(ctx, s.Keys.Buyers(p, sale.ID)).Result()
		if err != nil {
			return false, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not count the buyers")
		}
		slots += n
	}
	return slots <= reconcileSlots, nil
}

// lower mends a sale of which units are sold twice: taking them out of stock can't wait for an operator, and can't do harm.
func (s *Reconciler) lower(ctx context.Context, sale *pipeline.Sale, report *audit.Report) error {
	if !report.Exact || report.Drift >= 0 || time.Since(s.lowered[sale.ID]) < lowerEvery {
		return nil
	}
	s.lowered[sale.ID] = time.Now()
	repaired, err := s.repairer.Repair(ctx, sale.ID, "sluice", true)
	if err == nil && repaired.Applied {
		s.Log.Warn("units that were sold twice were taken out of stock", "sale", sale.ID, "units", -repaired.Found.Drift)
	}
	return err
}
