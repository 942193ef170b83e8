package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// CreateGroups creates the consumer group of every partition's stream, and the stream, where they are missing: from the
// beginning of the stream, because from "$" on, everything accepted before would never be delivered. Repeating it
// changes nothing.
//
// It comes before a sale is put into Redis. A Redis without memory creates no groups, and a worker, which reads all
// streams together, would read none of them if one had no group: so nothing is accepted before all of them are there.
// Errors: KindUnavailable.
func CreateGroups(ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int) error {
	created, err := createGroups(ctx, rdb, keys, partitions, "")
	if err != nil {
		return groupsNotMade(err)
	}
	return firstRefusal(created)
}

// JoinGroups is CreateGroups for a consumer, which it also adds to every group. That a full Redis refuses is no error:
// a missing group is noticed when it is read.
func JoinGroups(
	ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int, consumer string,
) error {
	created, err := createGroups(ctx, rdb, keys, partitions, consumer)
	if err != nil {
		return groupsNotMade(err)
	}
	return firstRefusal(slices.DeleteFunc(created, func(cmd redis.Cmder) bool { return redis.IsOOMError(cmd.Err()) }))
}

// createGroups returns its commands, each with its own result. An empty consumer is not added.
func createGroups(
	ctx context.Context, rdb redis.UniversalClient, keys pipeline.Keys, partitions int, consumer string,
) ([]redis.Cmder, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	for p := range pipeline.Partition(partitions) {
		pipe.XGroupCreateMkStream(ctx, keys.Orders(p), pipeline.Group, "0")
		if consumer != "" {
			pipe.XGroupCreateConsumer(ctx, keys.Orders(p), pipeline.Group, consumer)
		}
	}
	return retry.Exec(ctx, pipe)
}

// firstRefusal is the first error of the commands. That a group is there already is none.
func firstRefusal(created []redis.Cmder) error {
	for _, cmd := range created {
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
			return groupsNotMade(err)
		}
	}
	return nil
}

func groupsNotMade(err error) error {
	return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not make the consumer groups of the order streams")
}
