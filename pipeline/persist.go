package pipeline

import (
	"github.com/redis/go-redis/v9"

	"context"
	"sync"
	"time"
)

// lockedEvent is an event whose order this worker may persist.
type lockedEvent struct {
	Event
	lockKey string // empty when Redis had no memory for a lock
	token   string
}

// lockOrders takes the lock of each order, one round trip per partition, and leaves those that another worker holds: they
// stay pending and are looked at again. The lock saves work; what makes a second pass harmless is the insert.
func (w *Worker) lockOrders(ctx context.Context, events []Event) ([]lockedEvent, error) {
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

func (w *Worker) lockPartition(ctx context.Context, p Partition, events []Event) ([]lockedEvent, error) {
	keys := make([]string, len(events))
	for i, e := range events {
		keys[i] = w.keys.OrderLock(p, e.OrderID)
	}
	batch, err := w.locks.TryLockMany(ctx, keys)
	// At maxmemory Redis refuses new locks but lets events be acknowledged, which frees memory: to wait for a lock then
	// would be a deadlock.
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

func byPartition(events []Event) map[Partition][]Event {
	groups := map[Partition][]Event{}
	for _, e := range events {
		groups[e.Partition] = append(groups[e.Partition], e)
	}
	return groups
}

// persist writes events in one transaction and tells what became of them. A refused batch is halved until the
// event to blame stands alone, so that no event suffers for its neighbours. An error means that the rest was not tried
// or its fate is unknown.
func (w *Worker) persist(ctx context.Context, generation Generation, locked []lockedEvent) (sorted, error) {
	if len(locked) == 0 {
		return sorted{}, nil
	}
	events := make([]Event, len(locked))
	for i, l := range locked {
		events[i] = l.Event
	}
	outcomes, err := w.store.PersistOrders(ctx, generation, events)
	switch {
	case err == nil:
		return w.sortOut(locked, outcomes), nil
	case KindOf(err) != KindData:
		return sorted{}, err
	case len(locked) == 1:
		return sorted{refused: []refusedEvent{{lockedEvent: locked[0], reason: LetterRefused, cause: err}}}, nil
	}
	half := len(locked) / 2
	first, err := w.persist(ctx, generation, locked[:half])
	if err != nil {
		return first, err
	}
	second, err := w.persist(ctx, generation, locked[half:])
	return first.and(second), err
}

// sorted is what became of a batch: orders that Postgres holds, and events that it will never hold as orders that stand.
type sorted struct {
	done    []lockedEvent
	refused []refusedEvent
}

func (s sorted) and(t sorted) sorted {
	return sorted{append(s.done, t.done...), append(s.refused, t.refused...)}
}

// sortOut separates what Postgres holds from what can't stand beside what it holds.
func (w *Worker) sortOut(locked []lockedEvent, outcomes []PersistOutcome) sorted {
	w.metrics.persistBatch.Observe(float64(len(locked)))
	now := time.Now()
	s := sorted{done: make([]lockedEvent, 0, len(locked))}
	for i, l := range locked {
		w.metrics.persisted.WithLabelValues(string(outcomes[i])).Inc()
		switch outcomes[i] {
		case PersistInserted:
			w.metrics.persistDelay.Observe(now.Sub(l.AcceptedAt).Seconds())
			s.done = append(s.done, l)
		case PersistRedelivered:
			s.done = append(s.done, l)
		default:
			s.refused = append(s.refused, refusedEvent{lockedEvent: l, reason: string(outcomes[i])})
		}
	}
	return s
}

func without(all, some []lockedEvent) []lockedEvent {
	drop := keysOf(some)
	var rest []lockedEvent
	for _, l := range all {
		if _, dropped := drop[entryKey{l.Partition, l.EntryID}]; !dropped {
			rest = append(rest, l)
		}
	}
	return rest
}

func keysOf(locked []lockedEvent) map[entryKey]struct{} {
	keys := make(map[entryKey]struct{}, len(locked))
	for _, l := range locked {
		keys[entryKey{l.Partition, l.EntryID}] = struct{}{}
	}
	return keys
}
