package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// CreateGroups makes the consumer group of every partition's stream, and the stream, where they are missing: from the
// beginning of the stream, because from "$" on, everything accepted before would never be delivered. Repeating it changes
// nothing.
//
// It comes before a sale is put into Redis. A Redis without memory makes no groups, and a worker, which reads all streams
// together, would read none of them for the one that has no group: so nothing is accepted before all of them are there.
// Errors: KindUnavailable.
func CreateGroups(ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int) error {
	return ensureGroups(ctx, rdb, keys, partitions, "", nil)
}

// EnsureGroups is CreateGroups for a consumer, which it enters into every group as well. A full Redis that refuses to look is no
// error: a group that is missing shows when it is read.
func EnsureGroups(ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int, consumer string) error {
	return ensureGroups(ctx, rdb, keys, partitions, consumer, redis.IsOOMError)
}

func ensureGroups(
	ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int, consumer string, allowed func(error) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	for p := range pipeline.Partition(partitions) {
		pipe.XGroupCreateMkStream(ctx, keys.Orders(p), pipeline.Group, "0")
		if consumer != "" {
			pipe.XGroupCreateConsumer(ctx, keys.Orders(p), pipeline.Group, consumer)
		}
	}
	made, _ := pipe.Exec(ctx) // its error is the first command's, which may be one that is allowed
	for _, cmd := range made {
		err := cmd.Err()
		if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") && (allowed == nil || !allowed(err)) {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not make the consumer groups of the order streams")
		}
	}
	return nil
}
