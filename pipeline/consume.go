package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Entry is one stream entry as it was delivered.
type Entry struct {
	Partition Partition
	ID        string
	Fields    map[string]any
}

// lane fetches a batch, works it off, and fetches the next. It never has more than one in hand, so the backlog stays in the
// stream, where every other worker can help.
func (w *Worker) lane(ctx context.Context, partitions []Partition) {
	pause := newPause()
	spread := len(partitions) // those that had events last time share a batch
	for ctx.Err() == nil {
		if !w.back(ctx, partitions) {
			pause.wait(ctx)
			continue
		}
		generation := w.current() // before the fetch: what is fetched can't be older
		entries, err := w.fetch(partitions, max(1, w.opts.BatchSize/spread))
		if err != nil {
			w.fetchFailed(ctx, err)
			pause.wait(ctx)
			continue
		}
		pause.over()
		if len(entries) == 0 {
			continue
		}
		spread = countPartitions(entries)
		for batch := range slices.Chunk(entries, w.opts.BatchSize) {
			w.work(ctx, generation, batch)
		}
	}
}

// fetch reads new events, waiting up to fetchBlock for the first. It is not tied to the worker's context: a read that was
// cut off may have been delivered all the same.
func (w *Worker) fetch(partitions []Partition, perStream int) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchBlock+commandTimeout)
	defer cancel()
	streams := make([]string, 0, 2*len(partitions))
	for _, p := range partitions {
		streams = append(streams, w.keys.Orders(p))
	}
	for range partitions {
		streams = append(streams, ">")
	}
	read, err := w.reader.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: Group, Consumer: w.opts.Name, Streams: streams, Count: int64(perStream), Block: fetchBlock,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, stream := range read {
		p := partitions[slices.Index(streams, stream.Stream)]
		entries = appendEntries(entries, p, stream.Messages)
	}
	return entries, nil
}

func appendEntries(entries []Entry, p Partition, messages []redis.XMessage) []Entry {
	for _, m := range messages {
		entries = append(entries, Entry{Partition: p, ID: m.ID, Fields: m.Values})
	}
	return entries
}

func (w *Worker) fetchFailed(ctx context.Context, err error) {
	w.troubled("fetch", err)
	if !redis.HasErrorPrefix(err, "NOGROUP") {
		return
	}
	if err := w.ensureGroups(ctx); err != nil {
		w.troubled("join", err)
	}
}

func countPartitions(entries []Entry) int {
	seen := map[Partition]struct{}{}
	for _, e := range entries {
		seen[e.Partition] = struct{}{}
	}
	return len(seen)
}

// work carries entries as far as they go: it repeats passes while a store is away, with growing pauses, and fetches
// nothing meanwhile. What is finished is not tried again, so that every pass gets further than the one before. What is left
// when the context ends stays pending for others. Entries that were fetched before Redis was verified anew are shown to it
// first: it may have lost them.
func (w *Worker) work(ctx context.Context, generation Generation, entries []Entry) {
	entries = w.held.take(entries)
	defer w.held.drop(entries)
	pause := newPause()
	for len(entries) > 0 && ctx.Err() == nil {
		finished, err := w.pass(ctx, generation, entries)
		if IsForeign(err) {
			w.metrics.workerErrors.WithLabelValues("foreign").Inc()
			w.log.Error("a worker was given events of another installation, and leaves them alone", "entries", len(entries), "error", err)
			w.astray.Store(true)
			return // they stay pending, for whoever they belong to
		}
		if errors.Is(err, ErrStaleGeneration) {
			entries = remaining(entries, finished)
			generation, finished, err = w.showAgain(ctx, generation, entries)
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
			pause.over()
		}
		w.troubled("persist", err)
		pause.wait(ctx)
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
func decode(entries []Entry) (events []Event, unreadable []refusedEvent) {
	events = make([]Event, 0, len(entries))
	for _, entry := range entries {
		event, err := DecodeEvent(entry.Partition, entry.ID, entry.Fields)
		if err != nil {
			bare := Event{Partition: entry.Partition, EntryID: entry.ID}
			unreadable = append(unreadable, refusedEvent{lockedEvent: lockedEvent{Event: bare}, reason: LetterUndecodable, cause: err})
			continue
		}
		events = append(events, event)
	}
	return events, unreadable
}

// pass takes entries through lock, persist and settle once, within the batch deadline, and buries what can't be persisted
// when its neighbours are safe. It returns what is finished for good. It is not cut off by shutdown: what has begun is
// finished.
func (w *Worker) pass(ctx context.Context, generation Generation, entries []Entry) ([]lockedEvent, error) {
	w.passes <- struct{}{}
	defer func() { <-w.passes }()
	ctx = context.WithoutCancel(ctx)
	began := time.Now()
	if err := w.ours(ctx, entries); err != nil {
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

// finish settles what Postgres holds and tells those who wait for it, both at once: neither waits for the other.
func (w *Worker) finish(ctx context.Context, done []lockedEvent) {
	var telling sync.WaitGroup
	telling.Go(func() { w.news.Tell(ctx, changedBy(done)) })
	w.settle(ctx, done)
	telling.Wait()
}

func changedBy(done []lockedEvent) []Changed {
	changed := make([]Changed, 0, len(done))
	for _, l := range done {
		if l.OrderID != "" { // else nobody knows whose it was
			changed = append(changed, Changed{l.Partition, l.SaleID, l.OrderID})
		}
	}
	return changed
}

// lockAndPersist is the part of a pass that the batch deadline bounds: beyond it the locks are about to expire.
func (w *Worker) lockAndPersist(ctx context.Context, generation Generation, events []Event) ([]lockedEvent, sorted, error) {
	ctx, cancel := context.WithTimeout(ctx, w.opts.BatchDeadline)
	defer cancel()
	locked, err := w.lockOrders(ctx, events)
	if err != nil {
		return nil, sorted{}, err
	}
	result, err := w.persist(ctx, generation, locked)
	return locked, result, err
}
