package recovery

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// loss is a sale on a partition, with the watermark that Postgres has of it and what Redis has. A rebuild is given
// these.
type loss struct {
	watermark pipeline.Watermark
	state     saleState
	why       string // what Redis has lost: absent, accepts, releases, waitlist, moves or none; labels a metric
}

// saleState is what Redis has of a sale on a partition.
type saleState struct {
	present bool
	redisstore.SaleCounters
}

// behind returns what Redis has lost: absent, accepts, releases, waitlist or moves; or nothing.
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
	case s.MovedIn < m.MovedIn, s.MovedOut < m.MovedOut, s.MovesSettled < m.MovesSettled:
		return "moves"
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
// up, so it can't seem to be behind because of what happens between the two. A sale that was only about to be loaded
// counts where unloaded is true: on partitions that are closed, on which nobody can be loading it at this moment.
func (r *round) behind(
	ctx context.Context, partitions []pipeline.Partition, unloaded bool,
) (map[pipeline.Partition][]loss, error) {
	watermarks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	wanted := make(map[pipeline.Partition]bool, len(partitions))
	for _, p := range partitions {
		wanted[p] = true
	}
	found := map[pipeline.Partition][]loss{}
	for _, m := range watermarks {
		if !wanted[m.Partition] || !m.Loaded && !unloaded {
			continue
		}
		state, err := r.readState(ctx, m)
		if err != nil {
			return nil, err
		}
		why := state.behind(m)
		if why == "" && unloaded {
			if why, err = r.lostRelease(ctx, m); err != nil {
				return nil, err
			}
		}
		if why != "" {
			found[m.Partition] = append(found[m.Partition], loss{watermark: m, state: state, why: why})
		}
	}
	return found, nil
}

// latestReleases is how many releases of a sale on a partition are looked at. What Redis loses is the end of its
// history, so the latest one alone would tell, but for those that were given back at the same time.
const latestReleases = 100

// lostRelease reports "releases" where a slot is there that Postgres knows to be given back. The counters alone don't
// tell: a worker that dies between giving a release back and marking it leaves Postgres one behind for ever.
func (r *round) lostRelease(ctx context.Context, m pipeline.Watermark) (string, error) {
	at := pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition}
	releases, err := r.Store.LatestReleases(ctx, at, latestReleases)
	if err != nil || len(releases) == 0 {
		return "", err
	}
	users := make([]string, len(releases))
	for i := range releases {
		users[i] = releases[i].UserID
	}
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	slots, err := redisstore.ReadSlots(ctx, r.Redis, r.Keys, at, users)
	if err != nil {
		return "", err
	}
	for i, slot := range slots {
		if slot.OrderID == releases[i].OrderID && slot.Sequence == releases[i].Sequence {
			return "releases", nil
		}
	}
	return "", nil
}

// lossesOf returns what an operator's rebuild works on: every partition of some sales, behind or not.
func (v *Verifier) lossesOf(ctx context.Context, sales []*pipeline.Sale) (map[pipeline.Partition][]loss, error) {
	watermarks, err := v.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[pipeline.SalePartition]pipeline.Watermark, len(watermarks))
	for _, m := range watermarks {
		known[pipeline.SalePartition{SaleID: m.SaleID, Partition: m.Partition}] = m
	}
	losses := map[pipeline.Partition][]loss{}
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
			losses[p] = append(losses[p], loss{watermark: m, state: state, why: why})
		}
	}
	return losses, nil
}

// salesOf returns the ids of the sales of some losses.
func salesOf(behind []loss) map[string]bool {
	sales := make(map[string]bool, len(behind))
	for _, l := range behind {
		sales[l.watermark.SaleID] = true
	}
	return sales
}
