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
	items := map[lockBatch][]lua.SettleItem{}
	for _, l := range done {
		h := lockBatch{l.Partition, l.token}
		items[h] = append(items[h], lua.SettleItem{EntryID: l.EntryID, LockKey: l.lockKey})
	}
	var calls sync.WaitGroup
	for h, batch := range items {
		calls.Go(func() { w.settleHeld(ctx, h, batch) })
	}
	calls.Wait()
}

// lockBatch is what was locked together; the token is empty where Redis had no memory for locks.
type lockBatch struct {
	partition Partition
	token     string
}

func (w *Worker) settleHeld(ctx context.Context, h lockBatch, items []lua.SettleItem) {
	pause := newPause()
	for {
		_, err := lua.Settle(ctx, w.rdb, w.keys.Orders(h.partition), Group, h.token, items)
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
	keys := map[lockBatch][]string{}
	for _, l := range locked {
		if l.lockKey != "" {
			h := lockBatch{l.Partition, l.token}
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
