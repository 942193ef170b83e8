package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"sluice/internal/buyers"
	"sluice/internal/localservers"
)

// killMaster kills the master of a shard, and starts it again when the fault is over: if its replica has taken over by
// then, as a replica.
func (f *fleet) killMaster(s step) fault {
	undo := f.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := f.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			node := f.nodes[leader]
			undo = func(ctx context.Context) error { return errors.Join(node.Restart(ctx), f.awaitWhole(ctx)) }
			return hit(node.Kill())
		},
		undo: func(ctx context.Context) (int, error) { return 0, undo(ctx) },
	}
}

// stillMaster has the master of a shard stand still, for longer than its replica waits or not. One that goes on does
// not know at once that it leads no more.
func (f *fleet) stillMaster(s step) fault {
	undo := f.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := f.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			node := f.nodes[leader]
			undo = func(ctx context.Context) error { return errors.Join(node.Resume(), f.awaitWhole(ctx)) }
			return hit(node.Pause())
		},
		undo: func(ctx context.Context) (int, error) { return 0, undo(ctx) },
	}
}

// switchMaster is what an operator does before the maintenance of a node.
func (f *fleet) switchMaster(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			_, follower, err := f.pair(ctx, s.Target)
			switch {
			case err != nil:
				return 0, err
			case f.topology == Cluster:
				return hit(f.clients[follower].ClusterFailover(ctx).Err())
			}
			return hit(f.watchers[0].Do(ctx, "sentinel", "failover", localservers.SentinelName).Err())
		},
		undo: func(ctx context.Context) (int, error) { return 0, f.awaitWhole(ctx) },
	}
}

// lateTakeOver kills the master of a shard whose replica has received nothing for a moment, and takes over. The
// master's disk is lost.
func (f *fleet) lateTakeOver(s step) fault {
	undo := f.awaitWhole
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, follower, err := f.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			late, node := f.clients[follower], f.nodes[leader]
			undo = func(ctx context.Context) error {
				return errors.Join(f.awaitLeader(ctx, follower), late.ConfigSet(ctx, "masterauth", "").Err(), node.Restart(ctx),
					f.awaitWhole(ctx))
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
		undo: func(ctx context.Context) (int, error) { return 0, undo(ctx) },
	}
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

// flushMaster empties a shard.
func (f *fleet) flushMaster(s step) fault {
	return fault{
		do: func(ctx context.Context) (int, error) {
			leader, _, err := f.pair(ctx, s.Target)
			if err != nil {
				return 0, err
			}
			return hit(f.clients[leader].FlushAll(ctx).Err())
		},
		undo: nothing,
	}
}
