package recovery

import (
	"context"
	"slices"

	"sluice/pipeline"
)

// Rebuild rebuilds one sale on all of its partitions, whether or not it looks behind. Without apply nothing is changed,
// and the reports say what would be. With it nobody is admitted on those partitions meanwhile, and the actor goes into
// the audit log. Errors: KindNotFound; KindConflict when another verification is under way, or the sale has left Redis;
// KindUnavailable.
func (v *Verifier) Rebuild(ctx context.Context, saleID, actor string, apply bool) ([]pipeline.RebuildReport, error) {
	sale, err := v.Store.Sale(ctx, saleID)
	if err != nil {
		return nil, err
	}
	if !sale.RetiredAt.IsZero() {
		return nil, pipeline.Errorf(pipeline.KindConflict, "sale %s left Redis at %s, and is not to be there; "+
			"reschedule it to sell it again", sale.ID, pipeline.FormatTime(sale.RetiredAt))
	}
	return v.rebuildSales(ctx, []*pipeline.Sale{sale}, actor, apply)
}

// RebuildAll is Rebuild for every sale that Redis must have: those that were loaded, until a day after their last order
// can be paid. Errors: those of Rebuild.
func (v *Verifier) RebuildAll(ctx context.Context, actor string, apply bool) ([]pipeline.RebuildReport, error) {
	watermarks, err := v.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	var sales []*pipeline.Sale
	seen := map[string]bool{}
	for _, m := range watermarks {
		if seen[m.SaleID] {
			continue
		}
		seen[m.SaleID] = true
		sale, err := v.Store.Sale(ctx, m.SaleID)
		if err != nil {
			return nil, err
		}
		sales = append(sales, sale)
	}
	return v.rebuildSales(ctx, sales, actor, apply)
}

func (v *Verifier) rebuildSales(
	ctx context.Context, sales []*pipeline.Sale, actor string, apply bool,
) ([]pipeline.RebuildReport, error) {
	if !apply || len(sales) == 0 {
		return v.planRebuild(ctx, sales, nil)
	}
	r := v.newRound("operator")
	r.actor = actor
	err := v.rebuildExclusively(ctx, r, sales, nil)
	return r.reports, err
}

// rebuildExclusively closes the partitions of some sales, calls first before anything is read (nil: nothing is called),
// and rebuilds the sales. After an error some may be closed: the next look of an api or a worker verifies them.
func (v *Verifier) rebuildExclusively(
	ctx context.Context, r *round, sales []*pipeline.Sale, first func(context.Context, pipeline.Generation) error,
) error {
	ran, err := v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, verifyLimit)
		defer cancel()
		partitions := partitionsOf(sales)
		err := r.begin(ctx, partitions)
		if err == nil && first != nil {
			err = first(ctx, r.generation)
		}
		if err != nil {
			return err
		}
		behind, err := v.lossesOf(ctx, sales)
		if err != nil {
			return err
		}
		for _, p := range partitions {
			if err := r.rebuildPartition(ctx, p, behind[p]); err != nil {
				return err
			}
		}
		return r.reopen(ctx, partitions, reopenGrace)
	})
	if err == nil && !ran {
		err = pipeline.Errorf(pipeline.KindConflict, "another verification is under way; look again when it is done")
	}
	return err
}

// partitionsOf returns the partitions of some sales, each once, in order.
func partitionsOf(sales []*pipeline.Sale) []pipeline.Partition {
	var all []pipeline.Partition
	for _, sale := range sales {
		all = append(all, sale.Partitions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// planRebuild reports what a rebuild would do if the stream had some more events.
func (v *Verifier) planRebuild(
	ctx context.Context, sales []*pipeline.Sale, more []pipeline.Event,
) ([]pipeline.RebuildReport, error) {
	behind, err := v.lossesOf(ctx, sales)
	if err != nil {
		return nil, err
	}
	reports := []pipeline.RebuildReport{}
	for _, p := range partitionsOf(sales) {
		events, err := v.inFlight(ctx, p, salesOf(behind[p]))
		if err != nil {
			return nil, err
		}
		for _, e := range more {
			if e.Partition == p {
				events[e.SaleID] = append(events[e.SaleID], e)
			}
		}
		for _, l := range behind[p] {
			of := events[l.watermark.SaleID]
			orphans, err := v.orphans(ctx, pipeline.SalePartition{SaleID: l.watermark.SaleID, Partition: p}, of)
			if err != nil {
				return nil, err
			}
			_, found, err := v.collect(ctx, l, append(of, orphans...), slotCounter{}, entryCounter{},
				knownMoves(l))
			if err != nil {
				return nil, err
			}
			reports = append(reports, found.report(l, "operator"))
		}
	}
	return reports, nil
}
