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
	users                    map[string]bool
}

// waitlists reads a sale's waitlist on each of its partitions.
func (a *Auditor) waitlists(ctx context.Context, sale *pipeline.Sale) ([]auditedWaitlist, error) {
	var all []auditedWaitlist
	for _, p := range sale.Partitions {
		w := auditedWaitlist{users: map[string]bool{}}
		pipe := a.rdb.TxPipeline()
		counted := pipe.HGet(ctx, a.keys.Sale(p, sale.ID), "waiting")
		listed, entries := pipe.ZCard(ctx, a.keys.Waitlist(p, sale.ID)), pipe.HLen(ctx, a.keys.Waiting(p, sale.ID))
		if _, err := retry.Exec(ctx, pipe); err != nil { // a sale of an earlier version has no such count
			return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not return a waitlist")
		}
		if listed.Err() != nil || entries.Err() != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, errors.Join(listed.Err(), entries.Err()),
				"Redis did not return a waitlist")
		}
		w.counted, _ = strconv.ParseInt(counted.Val(), 10, 64)
		w.listed, w.entries = listed.Val(), entries.Val()
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: p}
		err := redisstore.EachWaiting(ctx, a.rdb, a.keys, at, func(userID string) { w.users[userID] = true })
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}
