package audit

import (
	"context"
	"errors"
	"strconv"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

// auditedWaitlist is what Redis has of a sale's waitlist on one partition.
type auditedWaitlist struct {
	// Buyers who wait: as the sale counts them, in the list, and in the hash that belongs to it; all of one instant.
	counted, listed, entries int64
	both                     map[string]bool // users who wait and hold a slot
}

// waitlists reads the sale's waitlist on each of its partitions.
func (l *look) waitlists(ctx context.Context) ([]auditedWaitlist, error) {
	var all []auditedWaitlist
	for _, p := range l.sale.Partitions {
		w := auditedWaitlist{both: map[string]bool{}}
		pipe := l.rdb.TxPipeline()
		counted := pipe.HGet(ctx, l.keys.Sale(p, l.sale.ID), "waiting")
		listed, entries := pipe.ZCard(ctx, l.keys.Waitlist(p, l.sale.ID)), pipe.HLen(ctx, l.keys.Waiting(p, l.sale.ID))
		if _, err := retry.Exec(ctx, pipe); err != nil { // a sale of an earlier version has no such count
			return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not return a waitlist")
		}
		if listed.Err() != nil || entries.Err() != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, errors.Join(listed.Err(), entries.Err()),
				"Redis did not return a waitlist")
		}
		w.counted, _ = strconv.ParseInt(counted.Val(), 10, 64)
		w.listed, w.entries = listed.Val(), entries.Val()
		if err := l.bothWays(ctx, p, &w); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// bothWays finds the buyers who wait and hold a slot, page by page.
//
// A buyer's slot is read after the entry. One whose accept Redis had counted when the look began was there all along,
// so the buyer did both at once. One that came later may have been handed over to the buyer in between.
func (l *look) bothWays(ctx context.Context, p pipeline.Partition, w *auditedWaitlist) error {
	var page []string
	var failed error
	look := func() bool {
		failed = l.bothOf(ctx, p, page, w)
		page = page[:0]
		return failed == nil
	}
	at := pipeline.SalePartition{SaleID: l.sale.ID, Partition: p}
	err := redisstore.EachWaiting(ctx, l.rdb, l.keys, at, func(userID string) bool {
		page = append(page, userID)
		return len(page) < redisstore.PageSize || look()
	})
	if err == nil && failed == nil && len(page) > 0 {
		look()
	}
	return errors.Join(err, failed)
}

func (l *look) bothOf(ctx context.Context, p pipeline.Partition, users []string, w *auditedWaitlist) error {
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	at := pipeline.SalePartition{SaleID: l.sale.ID, Partition: p}
	slots, err := redisstore.ReadSlots(call, l.rdb, l.keys, at, users)
	if err != nil {
		return err
	}
	latest := l.before
	for i, slot := range slots {
		if slot.OrderID == "" {
			continue
		}
		if slot.Sequence > latest[p].Accepted { // else it was never counted: it did not come during the look
			if latest, err = l.Counters(ctx, l.sale); err != nil {
				return err
			}
		}
		if slot.Sequence <= l.before[p].Accepted || slot.Sequence > latest[p].Accepted {
			w.both[users[i]] = true
		}
	}
	return nil
}
