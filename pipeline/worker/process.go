package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/installation"
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
	deadline, cancel := context.WithTimeout(ctx, w.opts.BatchDeadline) // beyond it the locks are about to expire
	defer cancel()
	var result outcome
	locked, err := w.lockOrders(deadline, events)
	if err == nil {
		result, err = w.persist(deadline, generation, locked)
	}
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

// inFlightEntries are the stream entries that this worker is processing. An entry that is pending for the worker but
// not in flight was delivered in a reply that never arrived, or was left to the worker that holds its lock.
type inFlightEntries struct {
	mu  sync.Mutex            // protects ids
	ids map[entryKey]struct{} // bounded by lanes × batch size
}

func newInFlightEntries() *inFlightEntries { return &inFlightEntries{ids: map[entryKey]struct{}{}} }

// begin adds the entries that are not in flight yet, and returns those.
func (f *inFlightEntries) begin(entries []entry) []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := make([]entry, 0, len(entries))
	for _, e := range entries {
		if _, inFlight := f.ids[e.entryKey]; inFlight {
			continue
		}
		f.ids[e.entryKey] = struct{}{}
		begun = append(begun, e)
	}
	return begun
}

func (f *inFlightEntries) end(entries []entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		delete(f.ids, e.entryKey)
	}
}

func (f *inFlightEntries) has(p pipeline.Partition, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, inFlight := f.ids[entryKey{p, id}]
	return inFlight
}
