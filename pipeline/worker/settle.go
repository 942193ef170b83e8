package worker

import (
	"context"
	"sync"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// settle acknowledges, deletes and unlocks events whose orders are in Postgres, one round trip per partition. It has a
// deadline of its own: what is committed must not remain locked because the batch deadline is over. If it fails until
// then the events remain pending, and their next delivery changes nothing but settles them.
func (w *Worker) settle(ctx context.Context, done []lockedEvent) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	items := map[lockBatch][]lua.SettleItem{}
	for _, l := range done {
		batch := lockBatch{l.Partition, l.token}
		item := lua.SettleItem{EntryID: l.EntryID, LockKey: l.lockKey, Stored: l.stored}
		if l.stored > 0 {
			item.SaleKey = w.keys.Sale(l.Partition, l.SaleID)
		}
		items[batch] = append(items[batch], item)
	}
	var calls sync.WaitGroup
	for batch, group := range items {
		calls.Go(func() { w.settleBatch(ctx, batch, group) })
	}
	calls.Wait()
}

func (w *Worker) settleBatch(ctx context.Context, batch lockBatch, items []lua.SettleItem) {
	backoff := retry.NewBackoff()
	for {
		_, err := lua.Settle(ctx, w.rdb, w.keys.Orders(batch.partition), pipeline.Group, batch.token, items)
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
