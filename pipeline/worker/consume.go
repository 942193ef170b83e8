package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// entry is one stream entry as it was delivered.
type entry struct {
	entryKey
	fields map[string]any
}

// entryKey names an entry of any partition's stream.
type entryKey struct {
	partition pipeline.Partition
	id        string
}

func (k entryKey) key() entryKey { return k }

// lane fetches a batch, processes it, and fetches the next. It never has more than one in flight, so the backlog
// remains in the stream, where every other worker can help.
func (w *Worker) lane(ctx context.Context, partitions []pipeline.Partition) {
	backoff := retry.NewBackoff()
	spread := len(partitions) // the number of partitions that had events last time, which share a batch
	for ctx.Err() == nil {
		if !w.mayFetch(ctx, partitions) {
			backoff.Wait(ctx)
			continue
		}
		generation := w.current() // before the fetch: what is fetched can't be older
		entries, err := w.fetch(partitions, max(1, w.opts.BatchSize/spread))
		if err != nil {
			w.fetchFailed(ctx, err)
			backoff.Wait(ctx)
			continue
		}
		backoff.Reset()
		if len(entries) == 0 {
			continue
		}
		spread = len(partitionsOf(entries))
		for batch := range slices.Chunk(entries, w.opts.BatchSize) {
			w.process(ctx, generation, batch)
		}
	}
}

// fetch reads new events, waiting up to fetchBlock for the first. It does not end with the worker's context: the events
// of a read that was cut off may have been delivered.
func (w *Worker) fetch(partitions []pipeline.Partition, perStream int) ([]entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchBlock+retry.CommandTimeout)
	defer cancel()
	streams := make([]string, 0, 2*len(partitions))
	for _, p := range partitions {
		streams = append(streams, w.keys.Orders(p))
	}
	for range partitions {
		streams = append(streams, ">")
	}
	read, err := w.reader.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: w.opts.Name, Streams: streams, Count: int64(perStream), Block: fetchBlock,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, stream := range read {
		p := partitions[slices.Index(streams, stream.Stream)]
		entries = appendEntries(entries, p, stream.Messages)
	}
	return entries, nil
}

func appendEntries(entries []entry, p pipeline.Partition, messages []redis.XMessage) []entry {
	for _, m := range messages {
		entries = append(entries, entry{entryKey{p, m.ID}, m.Values})
	}
	return entries
}

func (w *Worker) fetchFailed(ctx context.Context, err error) {
	w.stepFailed("fetch", err)
	if !redis.HasErrorPrefix(err, "NOGROUP") {
		return
	}
	if err := w.ensureGroups(ctx); err != nil {
		w.stepFailed("join", err)
	}
}

// partitionsOf returns each partition of the entries once.
func partitionsOf(entries []entry) []pipeline.Partition {
	var partitions []pipeline.Partition
	for _, e := range entries {
		if !slices.Contains(partitions, e.partition) {
			partitions = append(partitions, e.partition)
		}
	}
	return partitions
}

// mayFetch reports whether the worker may fetch. Once it was given events of another installation it fetches no more
// until Redis belongs to its own installation again.
func (w *Worker) mayFetch(ctx context.Context, partitions []pipeline.Partition) bool {
	if !w.foreign.Load() {
		return true
	}
	if err := w.checkOwners(ctx, partitions); err != nil {
		return false
	}
	w.foreign.Store(false)
	w.log.Info("Redis belongs to this installation again")
	return true
}

// current is the newest generation that this worker knows. It may be over by now; Postgres then refuses to persist
// (pipeline.ErrStaleGeneration).
func (w *Worker) current() pipeline.Generation { return pipeline.Generation(w.generation.Load()) }
