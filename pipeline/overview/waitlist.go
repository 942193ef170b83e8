package overview

import (
	"context"

	"sluice/lua"
	"sluice/pipeline"
)

// Waiter is a buyer on the waitlist of a sale.
type Waiter struct {
	lua.WaitlistEntry
	UserID    string
	Partition pipeline.Partition
	Place     int   // from 1; only those of one partition wait for each other
	Free      int64 // units that are free on that partition
}

// Waitlist returns those who are served next, up to limit of each of a sale's partitions, in their order. An entry that
// can't be read is left out: the next hand-over drops it. Errors: KindNotLoaded, KindUnavailable.
func (r *Reader) Waitlist(ctx context.Context, sale *pipeline.Sale, limit int) ([]Waiter, error) {
	counters, err := r.auditor.Counters(ctx, sale)
	if err != nil {
		return nil, err
	}
	var all []Waiter
	for _, p := range sale.Partitions {
		users, err := r.Redis.ZRange(ctx, r.Keys.Waitlist(p, sale.ID), 0, int64(limit-1)).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		if len(users) == 0 {
			continue
		}
		entries, err := r.Redis.HMGet(ctx, r.Keys.Waiting(p, sale.ID), users...).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		for i, user := range users {
			text, _ := entries[i].(string)
			entry, err := lua.ParseWaitlistEntry(text)
			if err != nil {
				continue
			}
			all = append(all, Waiter{entry, user, p, i + 1, counters[p].Stock})
		}
	}
	return all, nil
}
