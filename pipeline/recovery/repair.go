package recovery

import (
	"context"
	"log/slog"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
)

// RepairReport says what a repair found, did and left over.
type RepairReport struct {
	Applied bool          // false: nothing was changed, and Rebuilt says what would be
	Found   *audit.Report // the audit that the repair is based on
	// Kept counts accepts of which only the buyer's slot was left. Each becomes the order of its receipt, or a rejected
	// one with a dead letter.
	Kept    int64
	Rebuilt []pipeline.RebuildReport // the sale's partitions; none where Redis is not what is wrong
	Left    *audit.Report            // the audit afterwards; nil where nothing was applied
}

// RepairStore is what a repair needs of Postgres.
type RepairStore interface {
	VerifyStore
	PersistOrders(ctx context.Context, generation pipeline.Generation,
		events []pipeline.Event) ([]pipeline.PersistOutcome, error)
	deadletter.BuryStore
}

// Repairer repairs a sale in Redis once an audit has proved that Redis is wrong. There is one way to do so: nobody is
// admitted, and the sale is rebuilt from what Postgres and the stream prove (see Verifier.Rebuild). So the units on
// sale are never raised on a guess, and units that are too many are taken out of stock at once.
//
// A slot without an order is the one thing that a rebuild alone would get wrong: it may be a leak, or all that is left
// of an accept whose event was deleted. Postgres decides: where the order has a row it has ended, and its units go
// back; where it has none, it is persisted from the slot first, because its buyer got a 202.
type Repairer struct {
	store    RepairStore
	auditor  *audit.Auditor
	verifier *Verifier
	burier   *deadletter.Burier
	log      *slog.Logger
}

// NewRepairer returns a Repairer. The verifier must not be used by anything else.
func NewRepairer(
	store RepairStore, auditor *audit.Auditor, verifier *Verifier, burier *deadletter.Burier, log *slog.Logger,
) *Repairer {
	return &Repairer{store: store, auditor: auditor, verifier: verifier, burier: burier, log: log}
}

// Repair audits a sale and repairs it in Redis if something is wrong there. Without apply nothing is changed, and the
// report says what would be. With it nobody can order on the sale's partitions for some two seconds, and the actor goes
// into the audit log.
//
// It may die at any step and be repeated. Errors: KindNotFound; KindConflict (the sale moved all the time, so that
// nothing is proved, or another verification is under way); KindNotLoaded (Redis does not have the sale: it needs a
// rebuild); KindUnavailable.
func (r *Repairer) Repair(ctx context.Context, saleID, actor string, apply bool) (RepairReport, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return RepairReport{}, err
	}
	sale, err := r.store.Sale(ctx, saleID)
	if err != nil {
		return RepairReport{}, err
	}
	seen, err := r.auditor.Inspect(ctx, sale)
	if err != nil {
		return RepairReport{}, err
	}
	report := RepairReport{Found: seen.Report}
	switch {
	case !seen.Report.Exact:
		return report, pipeline.Errorf(pipeline.KindConflict,
			"units were given back, or the sale was changed, during every look: nothing is proved, "+
				"so nothing is repaired; try again, or pause the sale")
	case !seen.Repairable:
		return report, nil
	case apply:
		return r.apply(ctx, sale, seen, actor)
	default:
		return r.plan(ctx, sale, seen)
	}
}

// plan reports what apply would do.
func (r *Repairer) plan(ctx context.Context, sale *pipeline.Sale, seen audit.Inspection) (RepairReport, error) {
	report := RepairReport{Found: seen.Report}
	accepts, err := r.orphans(ctx, sale, seen.Strays)
	if err != nil {
		return report, err
	}
	// An orphan will have a row by then; its units count like those of an event in the stream.
	if report.Rebuilt, err = r.verifier.planRebuild(ctx, []*pipeline.Sale{sale}, accepts); err != nil {
		return report, err
	}
	report.Kept = int64(len(accepts))
	for i := range report.Rebuilt {
		followsFrom(&report.Rebuilt[i], seen.Report)
	}
	return report, nil
}

// followsFrom puts the audit that led to a rebuild into its report.
func followsFrom(r *pipeline.RebuildReport, found *audit.Report) {
	r.Cause, r.Reason = "repair", "drift"
	r.Drift, r.StrayBuyers, r.LostBuyers = found.Drift, found.StrayBuyers, found.LostBuyers
}

// apply rebuilds the sale after it has persisted the orphans, and audits it again.
func (r *Repairer) apply(
	ctx context.Context, sale *pipeline.Sale, seen audit.Inspection, actor string,
) (RepairReport, error) {
	report := RepairReport{Applied: true, Found: seen.Report}
	r.log.Error("a sale is wrong in Redis and is repaired", "sale", sale.ID, "actor", actor, "drift", seen.Report.Drift,
		"stray_buyers", seen.Report.StrayBuyers, "lost_buyers", seen.Report.LostBuyers)
	round := r.verifier.newRound("repair")
	round.actor, round.found = actor, seen.Report
	keep := func(ctx context.Context, g pipeline.Generation) (err error) {
		report.Kept, err = r.keepOrphans(ctx, g, sale, seen.Strays)
		return err
	}
	err := r.verifier.rebuildExclusively(ctx, round, []*pipeline.Sale{sale}, keep)
	if report.Rebuilt = round.reports; err != nil {
		return report, err
	}
	report.Left, err = r.auditor.Audit(ctx, sale)
	return report, err
}

// orphans returns the accepts of slots whose orders have no row. A slot that can't be read yields none.
func (r *Repairer) orphans(
	ctx context.Context, sale *pipeline.Sale, strays []audit.StrayBuyer,
) ([]pipeline.Event, error) {
	var accepts []pipeline.Event
	for len(strays) > 0 {
		chunk := strays[:min(len(strays), pipeline.MaxPersistBatch)]
		strays = strays[len(chunk):]
		var described []pipeline.Event
		for _, s := range chunk {
			at := pipeline.SalePartition{SaleID: sale.ID, Partition: s.Partition}
			if e, ok := acceptOf(at, s.UserID, s.Slot); ok {
				described = append(described, e)
			}
		}
		unknown, err := r.verifier.withoutRow(ctx, sale.ID, described)
		if err != nil {
			return nil, err
		}
		accepts = append(accepts, unknown...)
	}
	return accepts, nil
}

// keepOrphans persists the accepts of which only the slots are left, and returns how many. The partitions are closed,
// so that no slot is taken or freed any more; an order whose slot was freed since the audit has a row by now.
func (r *Repairer) keepOrphans(
	ctx context.Context, g pipeline.Generation, sale *pipeline.Sale, strays []audit.StrayBuyer,
) (int64, error) {
	accepts, err := r.orphans(ctx, sale, strays)
	if err != nil {
		return 0, err
	}
	for i := range accepts {
		if err := r.keep(ctx, g, &accepts[i]); err != nil {
			return int64(i), err
		}
	}
	return int64(len(accepts)), nil
}

// keep persists one accept by itself: this is rare, and one that Postgres refuses must not keep back another. A refused
// one becomes a dead letter.
func (r *Repairer) keep(ctx context.Context, g pipeline.Generation, e *pipeline.Event) error {
	outcomes, err := r.store.PersistOrders(ctx, g, []pipeline.Event{*e})
	why := ""
	switch {
	case pipeline.KindOf(err) == pipeline.KindData:
		why = err.Error()
	case err != nil:
		return err
	case outcomes[0] != pipeline.PersistInserted && outcomes[0] != pipeline.PersistRedelivered:
		why = string(outcomes[0])
	}
	if why == "" {
		r.log.Error("an accept whose event is gone was persisted from its buyer's slot",
			"sale", e.SaleID, "order", e.OrderID, "buyer", e.UserID)
		return nil
	}
	return r.burier.BuryLost(ctx, e, e.EntryID,
		"the order's event is gone, only the buyer's slot was left of it, and it can't stand: "+why)
}
