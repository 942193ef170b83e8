package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/internal/localservers"
	"sluice/pipeline"
)

const (
	shards     = 3
	wholeEvery = 100 * time.Millisecond
	// migrateCount keys move at a time, and each time may take migrateLimit: a hash of all buyers is one key.
	migrateCount = 20
	migrateLimit = 20 * time.Second
)

// redisCluster is the Redis of a run with that topology, with a connection to each node that no fault strikes.
type redisCluster struct {
	*localservers.RedisCluster
	clients []*redis.Client
}

func openCluster(ctx context.Context) (*redisCluster, error) {
	started, err := localservers.StartReplicatedRedisCluster(ctx)
	if err != nil {
		return nil, err
	}
	c := &redisCluster{RedisCluster: started}
	for _, node := range started.Nodes() {
		options, err := redis.ParseURL(node.URL())
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		options.ReadTimeout = queryLimit
		c.clients = append(c.clients, redis.NewClient(options))
	}
	return c, nil
}

// client is our own connection to the whole.
func (c *redisCluster) client() *redis.ClusterClient {
	addresses := strings.TrimPrefix(c.URL(), "redis+cluster://")
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(addresses, ","), ReadTimeout: queryLimit,
	})
}

func (c *redisCluster) close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(append(errs, c.Close())...)
}

// pair are the numbers of the nodes of a shard: who leads it now, and who follows.
func (c *redisCluster) pair(ctx context.Context, target string) (leader, follower int, err error) {
	var shard int
	if _, err := fmt.Sscanf(target, "shard-%d", &shard); err != nil {
		return 0, 0, fmt.Errorf("%s is no shard: %w", target, err)
	}
	leader, follower = shard-1, shard-1+shards
	leads, err := c.leads(ctx, leader)
	if err == nil && !leads {
		leader, follower = follower, leader
	}
	return leader, follower, err
}

func (c *redisCluster) leads(ctx context.Context, node int) (bool, error) {
	info, err := c.clients[node].Info(ctx, "replication").Result()
	return strings.Contains(info, "role:master"), err
}

// awaitWhole waits until every shard has a master and a replica that is in sync, and all nodes agree.
func (c *redisCluster) awaitWhole(ctx context.Context) error {
	for {
		err := c.whole(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}

func (c *redisCluster) whole(ctx context.Context) error {
	for i, client := range c.clients {
		state, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(state, "cluster_state:ok") {
			return fmt.Errorf("node %d: %s", i+1, state)
		}
	}
	for shard := range shards {
		leader, follower, err := c.pair(ctx, shardName(shard))
		if err != nil {
			return err
		}
		info, err := c.clients[follower].Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		lead, err := c.clients[leader].Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "master_link_status:up") || !strings.Contains(lead, "state=online") {
			return fmt.Errorf("%s has no replica in sync: %s", shardName(shard), info)
		}
	}
	return nil
}

func shardName(i int) string { return fmt.Sprintf("shard-%d", i+1) }

// killMaster kills the master of a shard, and starts it again when the fault is over: if its replica has taken over by
// then, as a replica.
func (c *redisCluster) killMaster(s step) fault {
	undo := c.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := c.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			node := c.Nodes()[leader]
			undo = func(ctx context.Context) error { return errors.Join(node.Restart(ctx), c.awaitWhole(ctx)) }
			return hit(node.Kill())
		},
		undo: func(ctx context.Context) (int, error) { return 0, undo(ctx) },
	}
}

// stillMaster has the master of a shard stand still, for longer than its replica waits or not. One that goes on does
// not know at once that it leads no more.
func (c *redisCluster) stillMaster(s step) fault {
	undo := c.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := c.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			node := c.Nodes()[leader]
			undo = func(ctx context.Context) error { return errors.Join(node.Resume(), c.awaitWhole(ctx)) }
			return hit(node.Pause())
		},
		undo: func(ctx context.Context) (int, error) { return 0, undo(ctx) },
	}
}

// switchMaster is what an operator does before the maintenance of a node.
func (c *redisCluster) switchMaster(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			_, follower, err := c.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			return hit(c.clients[follower].ClusterFailover(ctx).Err())
		},
		undo: func(ctx context.Context) (int, error) { return 0, c.awaitWhole(ctx) },
	}
}

// lateTakeOver kills the master of a shard whose replica has received nothing for a moment, and takes over. The
// master's disk is lost.
func (c *redisCluster) lateTakeOver(s step) fault {
	undo := c.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, follower, err := c.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			late, node := c.clients[follower], c.Nodes()[leader]
			undo = func(ctx context.Context) error {
				return errors.Join(late.ConfigSet(ctx, "masterauth", "").Err(), node.Restart(ctx), c.awaitWhole(ctx))
			}
			// A replica with a password that its master does not know can't follow it.
			if err := errors.Join(late.ConfigSet(ctx, "masterauth", "wrong").Err(),
				late.ClientKillByFilter(ctx, "TYPE", "master").Err()); err != nil {
				return 0, err
			}
			buyers.Sleep(ctx, between(s.Random, leastLag, mostLag))
			if err := node.Kill(); err != nil {
				return 0, err
			}
			return 1, os.RemoveAll(filepath.Join(node.Dir(), "appendonlydir"))
		},
		undo: func(ctx context.Context) (int, error) {
			err := c.awaitLeader(ctx, s)
			return 0, errors.Join(err, undo(ctx))
		},
	}
}

// awaitLeader waits until the node that followed leads: the other one must not come back before, with nothing.
func (c *redisCluster) awaitLeader(ctx context.Context, s step) error {
	for {
		for _, node := range []int{0, shards} {
			var shard int
			if _, err := fmt.Sscanf(s.Target, "shard-%d", &shard); err != nil {
				return err
			}
			if leads, err := c.leads(ctx, shard-1+node); err == nil && leads {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody leads %s: %w", s.Target, ctx.Err())
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}

// flushMaster empties a shard.
func (c *redisCluster) flushMaster(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := c.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			return hit(c.clients[leader].FlushAll(ctx).Err())
		},
		undo: nothing,
	}
}

// moveSlot moves a partition with all its keys to another shard while it is in use, as a rebalancing does.
func (c *redisCluster) moveSlot(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			partition := pipeline.Partition(s.Random % partitions)
			from, to, slot, err := c.places(ctx, s, partition)
			if err != nil {
				return 0, err
			}
			return hit(c.migrate(ctx, from, to, slot))
		},
		undo: func(ctx context.Context) (int, error) { return 0, c.awaitWhole(ctx) },
	}
}

// places are where a partition is, and where it is to be.
func (c *redisCluster) places(ctx context.Context, s step, partition pipeline.Partition) (from, to, slot int, err error) {
	key := pipeline.DefaultKeys.Orders(partition)
	number, err := c.clients[0].ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return 0, 0, 0, err
	}
	slot = int(number)
	from = -1
	var others []int
	for shard := range shards {
		leader, _, err := c.pair(ctx, shardName(shard))
		if err != nil {
			return 0, 0, 0, err
		}
		if _, err := c.clients[leader].Exists(ctx, key).Result(); err == nil {
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
func (c *redisCluster) migrate(ctx context.Context, from, to, slot int) error {
	source, target := c.clients[from], c.clients[to]
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

// onEach adds up what something came to on every node.
func (c *redisCluster) onEach(do func(*redis.Client) (int64, error)) (hits int, err error) {
	for _, client := range c.clients {
		n, nodeErr := do(client)
		hits, err = hits+int(n), errors.Join(err, nodeErr)
	}
	if hits > 0 { // a node may be down, by another fault
		return hits, nil
	}
	return 0, err
}
