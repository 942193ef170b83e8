package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/installation"
	"sluice/pipeline/notification"
	"sluice/pipeline/retry"
)

// process finishes entries. While a store is away it tries them again and again, with growing backoff; the lane fetches
// nothing in the meantime. What is finished is not tried again, so that every attempt gets further than the one before.
// What is left when the context ends remains pending for others. Entries that were fetched before Redis was verified
// anew are submitted to it again first, because it may have lost them.
func (w *Worker) process(ctx context.Context, generation pipeline.Generation, entries []entry) {
	entries = w.inFlight.begin(entries)
	defer w.inFlight.end(entries)
	backoff := retry.NewBackoff()
	for len(entries) > 0 && ctx.Err() == nil {
		finished, err := w.processOnce(ctx, generation, entries)
		if installation.IsForeign(err) {
			w.metrics.StepFailed("foreign")
			w.log.Error("a worker was given events of another installation, and leaves them alone",
				"entries", len(entries), "error", err)
			w.foreign.Store(true)
			return // they remain pending, for the workers of that installation
		}
		if errors.Is(err, pipeline.ErrStaleGeneration) {
			entries = without(entries, finished)
			generation, finished, err = w.resubmit(ctx, generation, entries)
			if err == nil {
				entries = without(entries, finished)
				continue
			}
		}
		if err == nil {
			return // what is not finished is locked by others
		}
		if len(finished) > 0 {
			entries = without(entries, finished)
			backoff.Reset()
		}
		w.stepFailed("persist", err)
		backoff.Wait(ctx)
	}
}

// without returns a copy without those that are finished, in the same order. The argument remains as it is: the caller
// still needs all of it.
func without[T interface{ key() entryKey }](all []T, finished []lockedEvent) []T {
	done := make(map[entryKey]struct{}, len(finished))
	for _, f := range finished {
		done[f.key()] = struct{}{}
	}
	var rest []T
	for _, one := range all {
		if _, ok := done[one.key()]; !ok {
			rest = append(rest, one)
		}
	}
	return rest
}

// decode separates the entries that can be read from those that can't.
func decode(entries []entry) (events []pipeline.Event, unreadable []refusedEvent) {
	events = make([]pipeline.Event, 0, len(entries))
	for _, e := range entries {
		event, err := pipeline.DecodeEvent(e.partition, e.id, e.fields)
		if err != nil {
			bare := lockedEvent{Event: pipeline.Event{Partition: e.partition, EntryID: e.id}}
			unreadable = append(unreadable, refusedEvent{lockedEvent: bare, reason: deadletter.Undecodable, cause: err})
			continue
		}
		events = append(events, event)
	}
	return events, unreadable
}

// processOnce locks, persists and settles entries once, within the batch deadline, and buries those that can't be
// persisted once the others are safe. It returns what is finished for good. A shutdown does not cut it off: what has
// begun is finished.
func (w *Worker) processOnce(
	ctx context.Context, generation pipeline.Generation, entries []entry,
) ([]lockedEvent, error) {
	w.batches <- struct{}{}
	defer func() { <-w.batches }()
	ctx = context.WithoutCancel(ctx)
	began := time.Now()
	if err := w.checkOwners(ctx, partitionsOf(entries)); err != nil {
		return nil, err
	}
	events, unreadable := decode(entries)
	locked, result, err := w.lockAndPersist(ctx, generation, events)
	w.finish(ctx, result.done)
	buried, buryErr := w.buryAll(ctx, entries, append(unreadable, result.refused...))
	finished := append(result.done, buried...)
	if err = errors.Join(err, buryErr); err != nil {
		w.unlock(without(locked, finished))
		return finished, err
	}
	w.log.Debug("batch persisted", "entries", len(entries), "persisted", len(result.done), "took", time.Since(began))
	return finished, nil
}

// finish settles the events whose orders are in Postgres and publishes the changes, both at once: neither waits for the
// other.
func (w *Worker) finish(ctx context.Context, done []lockedEvent) {
	var publishing sync.WaitGroup
	publishing.Go(func() { w.notifier.Publish(ctx, changedBy(done)) })
	w.settle(ctx, done)
	publishing.Wait()
}

func changedBy(done []lockedEvent) []notification.Change {
	changed := make([]notification.Change, 0, len(done))
	for _, l := range done {
		if l.OrderID != "" { // empty where the entry could not be read
			changed = append(changed, notification.Change{Partition: l.Partition, SaleID: l.SaleID, OrderID: l.OrderID})
		}
	}
	return changed
}

// lockAndPersist is the part of processOnce that the batch deadline bounds: beyond it the locks are about to expire.
func (w *Worker) lockAndPersist(
	ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
) ([]lockedEvent, outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, w.opts.BatchDeadline)
	defer cancel()
	locked, err := w.lockOrders(ctx, events)
	if err != nil {
		return nil, outcome{}, err
	}
	result, err := w.persist(ctx, generation, locked)
	return locked, result, err
}
