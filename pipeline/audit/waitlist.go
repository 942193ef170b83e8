package audit

import (
	"context"
	"fmt"
	"strconv"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
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
		_, _ = pipe.Exec(ctx) // a sale of an earlier version has no such count
		if listed.Err() != nil || entries.Err() != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, listed.Err(), "Redis did not return a waitlist")
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

// findWaiting adds what is wrong with the waitlists to the findings. The slots were read before: a buyer who is found
// in both may have lost the slot in between, but only if something was released, and then the look is not exact.
func (r *Report) findWaiting(waitlists []auditedWaitlist, slots map[string]placedSlot) {
	for _, w := range waitlists {
		r.Waiting += w.listed
		for user := range w.users {
			if _, holds := slots[user]; holds {
				r.BothWays++
			}
		}
		if w.counted != w.listed || w.entries != w.listed {
			r.Findings = append(r.Findings, fmt.Sprintf("%d people wait, the sale counts %d and Redis holds %d entries",
				w.listed, w.counted, w.entries))
		}
	}
	if r.Exact && r.BothWays > 0 {
		r.Findings = append(r.Findings, fmt.Sprintf("%d buyers wait and hold an order", r.BothWays))
	}
}
