package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/pipeline"
)

// migrateCount keys of a slot move at a time, and each time may take migrateLimit: a hash of all buyers is one key.
const (
	migrateCount = 20
	migrateLimit = 20 * time.Second
)

// moveSlot moves a partition with all its keys to another shard while it is in use, as a rebalancing does.
func (f *fleet) moveSlot(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			partition := pipeline.Partition(s.Random % partitions)
			from, to, slot, err := f.places(ctx, s, partition)
			if err != nil {
				return 0, err
			}
			return hit(f.migrate(ctx, from, to, slot))
		},
		undo: func(ctx context.Context) (int, error) { return 0, f.awaitWhole(ctx) },
	}
}

// places are where a partition is, and where it is to be.
func (f *fleet) places(ctx context.Context, s step, partition pipeline.Partition) (from, to, slot int, err error) {
	key := pipeline.DefaultKeys.Orders(partition)
	number, err := f.clients[0].ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return 0, 0, 0, err
	}
	slot = int(number)
	from = -1
	var others []int
	for shard := range f.shards {
		leader, _, err := f.pair(ctx, shardName(shard))
		if err != nil {
			return 0, 0, 0, err
		}
		if _, err := f.clients[leader].Exists(ctx, key).Result(); err == nil {
			from = leader
			continue
		}
		others = append(others, leader)
	}
	if from < 0 || len(others) == 0 {
		return 0, 0, 0, fmt.Errorf("%s is nowhere, or everywhere", partition)
	}
	return from, others[int(s.Random>>8%uint64(len(others)))], slot, nil
}

// migrate does what redis-cli --cluster reshard does with a slot.
func (f *fleet) migrate(ctx context.Context, from, to, slot int) error {
	source, target := f.clients[from], f.clients[to]
	sourceID, err := source.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	targetID, err := target.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	address, err := target.ConfigGet(ctx, "port").Result()
	if err != nil {
		return err
	}
	if err := errors.Join(
		target.Do(ctx, "cluster", "setslot", slot, "importing", sourceID).Err(),
		source.Do(ctx, "cluster", "setslot", slot, "migrating", targetID).Err()); err != nil {
		return err
	}
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, migrateCount).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		command := []any{"migrate", "127.0.0.1", address["port"], "", 0, migrateLimit.Milliseconds(), "keys"}
		for _, key := range keys {
			command = append(command, key)
		}
		if err := source.Do(ctx, command...).Err(); err != nil {
			return err
		}
	}
	return errors.Join(
		target.Do(ctx, "cluster", "setslot", slot, "node", targetID).Err(),
		source.Do(ctx, "cluster", "setslot", slot, "node", targetID).Err())
}
