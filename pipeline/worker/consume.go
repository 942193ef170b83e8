package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// Entry is one stream entry as it was delivered.
type Entry struct {
	Partition pipeline.Partition
	ID        string
	Fields    map[string]any
}

// lane fetches a batch, processes it, and fetches the next. It never has more than one in flight, so the backlog stays in the
// stream, where every other worker can help.
func (w *Worker) lane(ctx context.Context, partitions []pipeline.Partition) {
	backoff := retry.NewBackoff()
	spread := len(partitions) // those that had events last time share a batch
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
		spread = countPartitions(entries)
		for batch := range slices.Chunk(entries, w.opts.BatchSize) {
			w.process(ctx, generation, batch)
		}
	}
}

// fetch reads new events, waiting up to fetchBlock for the first. It is not tied to the worker's context: a read that was
// cut off may have been delivered all the same.
func (w *Worker) fetch(partitions []pipeline.Partition, perStream int) ([]Entry, error) {
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
	var entries []Entry
	for _, stream := range read {
		p := partitions[slices.Index(streams, stream.Stream)]
		entries = appendEntries(entries, p, stream.Messages)
	}
	return entries, nil
}

func appendEntries(entries []Entry, p pipeline.Partition, messages []redis.XMessage) []Entry {
	for _, m := range messages {
		entries = append(entries, Entry{Partition: p, ID: m.ID, Fields: m.Values})
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

func countPartitions(entries []Entry) int {
	seen := map[pipeline.Partition]struct{}{}
	for _, e := range entries {
		seen[e.Partition] = struct{}{}
	}
	return len(seen)
}
