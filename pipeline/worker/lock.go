package worker

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// lockedEvent is an event whose order this worker may persist.
type lockedEvent struct {
	pipeline.Event
	lockKey string // empty when Redis had no memory for a lock
	token   string
	stored  int64 // once its order stands: the mark of its sale; 0 where there is none
}

func (l lockedEvent) key() entryKey { return entryKey{l.Partition, l.EntryID} }

// lockOrders takes the lock of each order, one round trip per partition, and leaves out the orders whose lock another
// worker holds: they remain pending and are tried again. The locks save work; that an event may be processed twice is
// due to the insert, which changes nothing the second time.
func (w *Worker) lockOrders(ctx context.Context, events []pipeline.Event) ([]lockedEvent, error) {
	var mu sync.Mutex // protects the two below
	var locked []lockedEvent
	var failure error
	var calls sync.WaitGroup
	for p, group := range byPartition(events) {
		calls.Go(func() {
			got, err := w.lockPartition(ctx, p, group)
			mu.Lock()
			defer mu.Unlock()
			locked = append(locked, got...)
			if err != nil {
				failure = err
			}
		})
	}
	calls.Wait()
	if failure != nil {
		w.unlock(locked)
		return nil, failure
	}
	w.metrics.contended.Add(float64(len(events) - len(locked)))
	return locked, nil
}

func (w *Worker) lockPartition(
	ctx context.Context, p pipeline.Partition, events []pipeline.Event,
) ([]lockedEvent, error) {
	keys := make([]string, len(events))
	for i, e := range events {
		keys[i] = w.keys.OrderLock(p, e.OrderID)
	}
	batch, err := w.locks.TryLockMany(ctx, keys)
	// At maxmemory Redis refuses new locks but not acknowledgements, which free memory: waiting for a lock then would be a
	// deadlock.
	outOfMemory := redis.IsOOMError(err)
	if err != nil && !outOfMemory {
		return nil, err
	}
	locked := make([]lockedEvent, 0, len(events))
	for i, e := range events {
		switch {
		case outOfMemory:
			locked = append(locked, lockedEvent{Event: e})
		case batch.Held[i]:
			locked = append(locked, lockedEvent{Event: e, lockKey: keys[i], token: batch.Token})
		}
	}
	return locked, nil
}

func byPartition(events []pipeline.Event) map[pipeline.Partition][]pipeline.Event {
	groups := map[pipeline.Partition][]pipeline.Event{}
	for _, e := range events {
		groups[e.Partition] = append(groups[e.Partition], e)
	}
	return groups
}

// lockBatch names the locks of one call; the token is empty where Redis had no memory for locks.
type lockBatch struct {
	partition pipeline.Partition
	token     string
}

// unlock frees the locks of events that were not persisted, so that no worker has to wait for them to expire. It works
// even after the batch deadline.
func (w *Worker) unlock(locked []lockedEvent) {
	keys := map[lockBatch][]string{}
	for _, l := range locked {
		if l.lockKey != "" {
			batch := lockBatch{l.Partition, l.token}
			keys[batch] = append(keys[batch], l.lockKey)
		}
	}
	var calls sync.WaitGroup
	for batch, group := range keys {
		calls.Go(func() {
			if err := w.locks.UnlockMany(context.Background(), group, batch.token); err != nil { // it bounds itself
				w.stepFailed("unlock", err) // they expire
			}
		})
	}
	calls.Wait()
}
