package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"sluice/internal/buyers"
	"sluice/internal/localservers"
)

// onShard is a fault of the shard that a step aims at. strike is called with its master and its replica, and returns
// what ends it; after that, or if it failed, the fault is over when every shard is whole again.
func (f *fleet) onShard(s step, strike func(ctx context.Context, leader, follower int) (end, error)) fault {
	restore := func(context.Context) error { return nil }
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, follower, err := f.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			ends, err := strike(ctx, leader, follower)
			if ends != nil {
				restore = ends
			}
			return hit(err)
		},
		undo: func(ctx context.Context) (int, error) { return 0, errors.Join(restore(ctx), f.awaitWhole(ctx)) },
	}
}

// end undoes what a fault did to a shard; nil if nothing is to be undone.
type end func(context.Context) error

// killMaster kills the master of a shard, and starts it again when the fault is over: if its replica has taken over by
// then, as a replica.
func (f *fleet) killMaster(s step) fault {
	return f.onShard(s, func(_ context.Context, leader, _ int) (end, error) {
		return f.nodes[leader].Restart, f.nodes[leader].Kill()
	})
}

// stillMaster has the master of a shard stand still, for longer than its replica waits or not. One that goes on does
// not know at once that it leads no more.
func (f *fleet) stillMaster(s step) fault {
	return f.onShard(s, func(_ context.Context, leader, _ int) (end, error) {
		node := f.nodes[leader]
		return func(context.Context) error { return node.Resume() }, node.Pause()
	})
}

// switchMaster is what an operator does before the maintenance of a node.
func (f *fleet) switchMaster(s step) fault {
	return f.onShard(s, func(ctx context.Context, _, follower int) (end, error) {
		if f.topology == Cluster {
			return nil, f.clients[follower].ClusterFailover(ctx).Err()
		}
		return nil, f.watchers[0].Do(ctx, "sentinel", "failover", localservers.SentinelName).Err()
	})
}

// lateTakeOver kills the master of a shard whose replica has received nothing for a moment, and takes over. The
// master's disk is lost.
func (f *fleet) lateTakeOver(s step) fault {
	return f.onShard(s, func(ctx context.Context, leader, follower int) (end, error) {
		late, node := f.clients[follower], f.nodes[leader]
		ends := func(ctx context.Context) error {
			return errors.Join(f.awaitLeader(ctx, follower), f.follows(ctx, late), node.Restart(ctx))
		}
		// A replica with a password that its master does not know can't follow it.
		err := errors.Join(late.ConfigSet(ctx, "masterauth", "wrong").Err(),
			late.ClientKillByFilter(ctx, "TYPE", "master").Err())
		if err != nil {
			return ends, err
		}
		buyers.Sleep(ctx, between(s.Random, leastLag, mostLag))
		if err := node.Kill(); err != nil {
			return ends, err
		}
		return ends, os.RemoveAll(filepath.Join(node.Dir(), "appendonlydir"))
	})
}

// flushMaster empties a shard.
func (f *fleet) flushMaster(s step) fault {
	return f.onShard(s, func(ctx context.Context, leader, _ int) (end, error) {
		return nil, f.clients[leader].FlushAll(ctx).Err()
	})
}

// follows lets a node follow a master again.
func (f *fleet) follows(ctx context.Context, node *redis.Client) error {
	err := node.ConfigSet(ctx, "masterauth", "").Err()
	if f.topology == Sentinel { // which has had it written down when it made the node a master
		err = errors.Join(err, node.ConfigRewrite(ctx).Err())
	}
	return err
}

// awaitLeader waits until the node that followed leads: the other one must not come back before, with nothing.
func (f *fleet) awaitLeader(ctx context.Context, node int) error {
	for {
		leads, err := f.leads(ctx, node)
		if err == nil && leads {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(errors.New("the replica did not take over"), err, ctx.Err())
		}
		buyers.Sleep(ctx, wholeEvery)
	}
}
