package worker

import (
	"context"
	"sync"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// settle acknowledges, deletes and unlocks what Postgres holds, one round trip per partition. It has a time of its own:
// what is committed must not stay locked because the batch's time is over. When it fails until then the events stay
// pending, and their next delivery changes nothing but settles them.
func (w *Worker) settle(ctx context.Context, done []lockedEvent) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
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

func (w *Worker) settleHeld(ctx context.Context, h lockBatch, items []lua.SettleItem) {
	backoff := retry.NewBackoff()
	for {
		_, err := lua.Settle(ctx, w.rdb, w.keys.Orders(h.partition), pipeline.Group, h.token, items)
		if err == nil {
			return
		}
		w.stepFailed("settle", err)
		if ctx.Err() != nil {
			return
		}
		backoff.Wait(ctx)
	}
}
