package pipeline

import (
	"context"
	"sync"

	"sluice/lua"
)

// settle acknowledges, deletes and unlocks what Postgres holds, one round trip per partition. It has a time of its own:
// what is committed must not stay locked because the batch's time is over. When it fails until then the events stay
// pending, and their next delivery changes nothing but settles them.
func (w *Worker) settle(ctx context.Context, done []lockedEvent) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	items := map[Partition][]lua.SettleItem{}
	for _, l := range done {
		items[l.Partition] = append(items[l.Partition], lua.SettleItem{EntryID: l.EntryID, LockKey: l.lockKey, Token: l.token})
	}
	var calls sync.WaitGroup
	for p, batch := range items {
		calls.Go(func() { w.settlePartition(ctx, p, batch) })
	}
	calls.Wait()
}

func (w *Worker) settlePartition(ctx context.Context, p Partition, items []lua.SettleItem) {
	pause := newPause()
	for {
		_, err := lua.Settle(ctx, w.rdb, w.keys.Orders(p), Group, items)
		if err == nil {
			return
		}
		w.troubled("settle", err)
		if ctx.Err() != nil {
			return
		}
		pause.wait(ctx)
	}
}

// unlock frees the locks of events that were not persisted, so that nobody waits for them to expire. It works although
// the batch's time is over.
func (w *Worker) unlock(locked []lockedEvent) {
	type holding struct {
		partition Partition
		token     string
	}
	keys := map[holding][]string{}
	for _, l := range locked {
		if l.lockKey != "" {
			h := holding{l.Partition, l.token}
			keys[h] = append(keys[h], l.lockKey)
		}
	}
	var calls sync.WaitGroup
	for h, group := range keys {
		calls.Go(func() {
			if err := w.locks.UnlockMany(context.Background(), group, h.token); err != nil { // it bounds itself
				w.troubled("unlock", err) // they expire
			}
		})
	}
	calls.Wait()
}
