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

// process carries entries as far as they go: it processes them again and again while a store is away, with growing pauses, and
// fetches nothing meanwhile. What is finished is not tried again, so that every attempt gets further than the one before. What
// is left when the context ends stays pending for others. Entries that were fetched before Redis was verified anew are submitted
// to it first: it may have lost them.
func (w *Worker) process(ctx context.Context, generation pipeline.Generation, entries []Entry) {
	entries = w.inFlight.begin(entries)
	defer w.inFlight.end(entries)
	backoff := retry.NewBackoff()
	for len(entries) > 0 && ctx.Err() == nil {
		finished, err := w.processOnce(ctx, generation, entries)
		if installation.IsForeign(err) {
			w.metrics.StepFailed("foreign")
			w.log.Error("a worker was given events of another installation, and leaves them alone", "entries", len(entries), "error", err)
			w.foreign.Store(true)
			return // they stay pending, for the workers of that installation
		}
		if errors.Is(err, pipeline.ErrStaleGeneration) {
			entries = remaining(entries, finished)
			generation, finished, err = w.resubmit(ctx, generation, entries)
			if err == nil {
				entries = remaining(entries, finished)
				continue
			}
		}
		if err == nil {
			return // what is not finished is locked by others
		}
		if len(finished) > 0 {
			entries = remaining(entries, finished)
			backoff.Reset()
		}
		w.stepFailed("persist", err)
		backoff.Wait(ctx)
	}
}

// remaining keeps the entries that are not finished, in their order and their own memory: the caller still holds them all.
func remaining(entries []Entry, finished []lockedEvent) []Entry {
	done := keysOf(finished)
	var rest []Entry
	for _, e := range entries {
		if _, ok := done[entryKey{e.Partition, e.ID}]; !ok {
			rest = append(rest, e)
		}
	}
	return rest
}

// decode sorts out what can't be read.
func decode(entries []Entry) (events []pipeline.Event, unreadable []refusedEvent) {
	events = make([]pipeline.Event, 0, len(entries))
	for _, entry := range entries {
		event, err := pipeline.DecodeEvent(entry.Partition, entry.ID, entry.Fields)
		if err != nil {
			bare := pipeline.Event{Partition: entry.Partition, EntryID: entry.ID}
			unreadable = append(unreadable, refusedEvent{lockedEvent: lockedEvent{Event: bare}, reason: deadletter.Undecodable, cause: err})
			continue
		}
		events = append(events, event)
	}
	return events, unreadable
}

// processOnce takes entries through lock, persist and settle once, within the batch deadline, and buries what can't be persisted
// when its neighbours are safe. It returns what is finished for good. It is not cut off by shutdown: what has begun is
// finished.
func (w *Worker) processOnce(ctx context.Context, generation pipeline.Generation, entries []Entry) ([]lockedEvent, error) {
	w.batches <- struct{}{}
	defer func() { <-w.batches }()
	ctx = context.WithoutCancel(ctx)
	began := time.Now()
	if err := w.checkOwner(ctx, entries); err != nil {
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

// finish settles what Postgres holds and publishes the changes, both at once: neither waits for the other.
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
func (w *Worker) lockAndPersist(ctx context.Context, generation pipeline.Generation, events []pipeline.Event) ([]lockedEvent, sorted, error) {
	ctx, cancel := context.WithTimeout(ctx, w.opts.BatchDeadline)
	defer cancel()
	locked, err := w.lockOrders(ctx, events)
	if err != nil {
		return nil, sorted{}, err
	}
	result, err := w.persist(ctx, generation, locked)
	return locked, result, err
}
