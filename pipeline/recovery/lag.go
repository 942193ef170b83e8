package recovery

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// lag is a sale on a partition, with the watermark that Postgres has of it and what Redis has. A rebuild is given
// these.
type lag struct {
	watermark pipeline.Watermark
	state     saleState
	why       string // what Redis has lost: absent, accepts, releases, waitlist or none; labels a metric
}

// saleState is what Redis has of a sale on a partition.
type saleState struct {
	present bool
	redisstore.SaleCounters
}

// behind returns what Redis has lost: absent, accepts, releases or waitlist; or nothing.
func (s saleState) behind(m pipeline.Watermark) string {
	switch {
	case !s.present:
		return "absent"
	case s.Accepted < m.Accepted:
		return "accepts"
	case s.Released < m.Released:
		return "releases"
	case s.Tickets < m.Tickets:
		return "waitlist"
	default:
		return ""
	}
}

// readState reads what Redis has of a sale. What can't be read counts as lost: one such sale must not keep the others
// closed.
func (v *Verifier) readState(ctx context.Context, m pipeline.Watermark) (saleState, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	at := pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition}
	counters, err := redisstore.ReadSale(ctx, v.Redis, v.Keys, at)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded || redisstore.IsUnreadable(err) {
		return saleState{}, nil
	}
	return saleState{err == nil, counters}, err
}

// behind compares what Redis has with what Postgres knows that it must have. Postgres is read first: Redis only counts
// up, so it can't seem to be behind because of what happens between the two.
func (r *round) behind(ctx context.Context, partitions []pipeline.Partition) (map[pipeline.Partition][]lag, error) {
	watermarks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	wanted := make(map[pipeline.Partition]bool, len(partitions))
	for _, p := range partitions {
		wanted[p] = true
	}
	found := map[pipeline.Partition][]lag{}
	for _, m := range watermarks {
		if !wanted[m.Partition] {
			continue
		}
		state, err := r.readState(ctx, m)
		if err != nil {
			return nil, err
		}
		if why := state.behind(m); why != "" {
			found[m.Partition] = append(found[m.Partition], lag{watermark: m, state: state, why: why})
		}
	}
	return found, nil
}

// lags returns what an operator's rebuild works on: every partition of some sales, behind or not.
func (v *Verifier) lags(ctx context.Context, sales []*pipeline.Sale) (map[pipeline.Partition][]lag, error) {
	watermarks, err := v.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[pipeline.SalePartition]pipeline.Watermark, len(watermarks))
	for _, m := range watermarks {
		known[pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition}] = m
	}
	lags := map[pipeline.Partition][]lag{}
	for _, sale := range sales {
		for _, p := range sale.Partitions {
			m, ok := known[pipeline.SalePartition{SaleID: sale.ID, Partition: p}]
			if !ok {
				m = pipeline.Watermark{SaleID: sale.ID, Partition: p, Version: sale.Version}
			}
			state, err := v.readState(ctx, m)
			if err != nil {
				return nil, err
			}
			why := state.behind(m)
			if why == "" {
				why = "none"
			}
			lags[p] = append(lags[p], lag{watermark: m, state: state, why: why})
		}
	}
	return lags, nil
}

// salesOf returns the ids of the sales of some lags.
func salesOf(behind []lag) map[string]bool {
	sales := make(map[string]bool, len(behind))
	for _, l := range behind {
		sales[l.watermark.SaleID] = true
	}
	return sales
}
