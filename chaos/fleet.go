package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/internal/config"
	"sluice/internal/localservers"
)

const wholeEvery = 100 * time.Millisecond

// fleet is the Redis of a run where replicas take over: one primary and its replica for each shard, with a connection
// to each server that no fault strikes.
type fleet struct {
	topology Topology
	url      string
	nodes    []*localservers.Redis // those that led at the start, then their replicas in the same order
	shards   int
	clients  []*redis.Client // of the nodes
	watchers []*redis.Client // of the sentinels
	closing  func() error
}

func openFleet(ctx context.Context, topology Topology) (*fleet, error) {
	f := &fleet{topology: topology}
	var watchers []string
	switch topology {
	case Cluster:
		c, err := localservers.StartReplicatedRedisCluster(ctx)
		if err != nil {
			return nil, err
		}
		f.url, f.nodes, f.closing = c.URL(), c.Nodes(), c.Close
	case Sentinel:
		s, err := localservers.StartRedisSentinel(ctx)
		if err != nil {
			return nil, err
		}
		f.url, f.nodes, f.closing, watchers = s.URL(), s.Nodes(), s.Close, s.Sentinels()
	case Single, ReplicatedPostgres, Citus: // their Redis has no replica
	}
	f.shards = len(f.nodes) / 2
	for _, node := range f.nodes {
		options, err := redis.ParseURL(node.URL())
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		options.ReadTimeout = queryLimit
		f.clients = append(f.clients, redis.NewClient(options))
	}
	for _, address := range watchers {
		f.watchers = append(f.watchers, redis.NewClient(&redis.Options{Addr: address}))
	}
	return f, nil
}

// client is our own connection to the whole.
func (f *fleet) client() (redis.UniversalClient, error) {
	options, err := config.RedisOptions(f.url)
	if err != nil {
		return nil, err
	}
	options.ReadTimeout = queryLimit
	return config.NewRedisClient(options), nil
}

func (f *fleet) close() error {
	var errs []error
	for _, client := range slices.Concat(f.clients, f.watchers) {
		errs = append(errs, client.Close())
	}
	return errors.Join(append(errs, f.closing())...)
}

// pair are the numbers of the nodes of a shard: who leads it now, and who follows.
func (f *fleet) pair(ctx context.Context, target string) (leader, follower int, err error) {
	var shard int
	if _, err := fmt.Sscanf(target, "shard-%d", &shard); err != nil {
		return 0, 0, fmt.Errorf("%s is no shard: %w", target, err)
	}
	leader, follower = shard-1, shard-1+f.shards
	leads, err := f.leads(ctx, leader)
	if err == nil && !leads {
		leader, follower = follower, leader
	}
	return leader, follower, err
}

func (f *fleet) leads(ctx context.Context, node int) (bool, error) {
	info, err := f.clients[node].Info(ctx, "replication").Result()
	return strings.Contains(info, "role:master"), err
}

// awaitWhole waits until every shard has a master and a replica that is in sync, and all nodes agree.
func (f *fleet) awaitWhole(ctx context.Context) error {
	for {
		err := f.whole(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}

func (f *fleet) whole(ctx context.Context) error {
	if err := f.agreed(ctx); err != nil {
		return err
	}
	for shard := range f.shards {
		name := shardName(shard)
		leader, follower, err := f.pair(ctx, name)
		if err != nil {
			return err
		}
		follows, err := f.clients[follower].Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		leads, err := f.clients[leader].Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(follows, "master_link_status:up") || !strings.Contains(leads, "state=online") {
			return fmt.Errorf("%s has no replica in sync: %s", name, follows)
		}
	}
	return nil
}

// agreed reports whether the nodes of a cluster think that it works, or the sentinels that one server leads.
func (f *fleet) agreed(ctx context.Context) error {
	if f.topology == Cluster {
		for i, client := range f.clients {
			state, err := client.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("node %d: %s", i+1, state)
			}
		}
		return nil
	}
	var leads []string
	for _, watcher := range f.watchers {
		at, err := watcher.Do(ctx, "sentinel", "get-master-addr-by-name", localservers.SentinelName).StringSlice()
		if err != nil {
			return err
		}
		leads = append(leads, strings.Join(at, ":"))
	}
	if len(slices.Compact(leads)) != 1 {
		return fmt.Errorf("the sentinels don't agree who leads: %q", leads)
	}
	return nil
}

func shardName(i int) string { return fmt.Sprintf("shard-%d", i+1) }

// onEach adds up what something came to on every node.
func (f *fleet) onEach(do func(*redis.Client) (int64, error)) (hits int, err error) {
	for _, client := range f.clients {
		n, nodeErr := do(client)
		hits, err = hits+int(n), errors.Join(err, nodeErr)
	}
	if hits > 0 { // a node may be down, by another fault
		return hits, nil
	}
	return 0, err
}
