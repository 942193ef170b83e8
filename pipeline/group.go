package pipeline

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// createGroups makes the consumer group of every partition's stream, and the stream, where they are missing: from the
// beginning of the stream, because from "$" on, everything accepted before would never be delivered. Repeating it changes
// nothing.
//
// Whoever puts a sale into Redis calls it first. A Redis without memory makes no groups, and a worker, which reads all streams
// together, would read none of them for the one that has no group: so nothing is accepted before all of them are there.
// Errors: KindUnavailable.
func createGroups(ctx context.Context, rdb redis.UniversalClient, keys Keys, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	pipe := rdb.Pipeline()
	for p := range Partition(partitions) {
		pipe.XGroupCreateMkStream(ctx, keys.Orders(p), Group, "0")
	}
	made, _ := pipe.Exec(ctx) // its error is the first command's, which may be one that is allowed
	for _, cmd := range made {
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
			return Wrap(KindUnavailable, err, "Redis did not make the consumer groups of the order streams")
		}
	}
	return nil
}
