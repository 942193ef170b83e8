package recovery

import (
	"context"
	"slices"

	"sluice/pipeline"
)

// addMoved adds what partitions have of sales whose units have moved, also where their counters are behind nothing.
// Redis counts a move before Postgres knows of it. So one that is not noted yet may hide that a later one was lost,
// and one that took nothing adds nothing: only a rebuild makes moves and stock agree.
func (r *round) addMoved(
	ctx context.Context, partitions []pipeline.Partition, losses map[pipeline.Partition][]loss,
) error {
	watermarks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return err
	}
	for _, m := range watermarks {
		listed := slices.ContainsFunc(losses[m.Partition], func(l loss) bool { return l.watermark.SaleID == m.SaleID })
		if !m.Moved || listed || !slices.Contains(partitions, m.Partition) {
			continue
		}
		state, err := r.readState(ctx, m)
		if err != nil {
			return err
		}
		losses[m.Partition] = append(losses[m.Partition], loss{watermark: m, state: state, why: "moves"})
	}
	return nil
}

// withSpread adds all partitions of the sales that are on several. Postgres may have forgotten moves of units between
// them, so what they have is made to agree again with what it knows: all of them together, before any of them opens.
func (r *round) withSpread(
	ctx context.Context, losses map[pipeline.Partition][]loss,
) (map[pipeline.Partition][]loss, error) {
	marks, err := r.Ledger.LedgerMarks(ctx)
	if err != nil {
		return nil, err
	}
	listed := map[pipeline.SalePartition]bool{}
	for p, some := range losses {
		for _, l := range some {
			listed[pipeline.SalePartition{SaleID: l.watermark.SaleID, Partition: p}] = true
		}
	}
	read := map[string]bool{}
	for _, m := range marks {
		if !m.Spread || read[m.SaleID] {
			continue
		}
		read[m.SaleID] = true
		sale, err := r.Store.Sale(ctx, m.SaleID)
		if err != nil {
			return nil, err
		}
		if sale.LoadedAt.IsZero() && sale.Sold == 0 {
			continue // it never was in Redis, or is yet to be loaded
		}
		all, err := r.lossesOf(ctx, []*pipeline.Sale{sale})
		if err != nil {
			return nil, err
		}
		for p, some := range all {
			if !listed[pipeline.SalePartition{SaleID: sale.ID, Partition: p}] {
				some[0].why = "moves"
				losses[p] = append(losses[p], some...)
			}
		}
	}
	return losses, nil
}
