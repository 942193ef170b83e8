package audit

import (
	"context"
	"fmt"
	"strconv"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// auditedWaitlist is what Redis holds of a sale's waitlist on one partition.
type auditedWaitlist struct {
	counted, places, entries int64 // people: as the sale counts them, in the list, and in the hash beside it; of one instant
	users                    map[string]bool
}

func (a *Auditor) waitlists(ctx context.Context, sale *pipeline.Sale) ([]auditedWaitlist, error) {
	var all []auditedWaitlist
	for _, p := range sale.Partitions {
		w := auditedWaitlist{users: map[string]bool{}}
		pipe := a.rdb.TxPipeline()
		counted := pipe.HGet(ctx, a.keys.Sale(p, sale.ID), "waiting")
		places, entries := pipe.ZCard(ctx, a.keys.Waitlist(p, sale.ID)), pipe.HLen(ctx, a.keys.Waiting(p, sale.ID))
		_, _ = pipe.Exec(ctx) // a sale of an earlier build counts nobody
		if places.Err() != nil || entries.Err() != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, places.Err(), "Redis did not tell who waits")
		}
		w.counted, _ = strconv.ParseInt(counted.Val(), 10, 64)
		w.places, w.entries = places.Val(), entries.Val()
		if err := redisstore.EachWaiting(ctx, a.rdb, a.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p}, func(userID string) { w.users[userID] = true }); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// findWaiting says what is wrong with the waitlists. The slots were read before: who is found in both got rid of a slot in
// between only if something was released, and then the look is not exact.
func (r *Report) findWaiting(waitlists []auditedWaitlist, slots map[string]placedSlot) {
	for _, w := range waitlists {
		r.Waiting += w.places
		for user := range w.users {
			if _, holds := slots[user]; holds {
				r.BothWays++
			}
		}
		if w.counted != w.places || w.entries != w.places {
			r.Findings = append(r.Findings, fmt.Sprintf("%d people wait, the sale counts %d and Redis holds %d entries", w.places, w.counted, w.entries))
		}
	}
	if r.Exact && r.BothWays > 0 {
		r.Findings = append(r.Findings, fmt.Sprintf("%d buyers wait and hold an order", r.BothWays))
	}
}
