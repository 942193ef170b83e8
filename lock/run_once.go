package lock

import (
	"context"
	"errors"
	"time"

	scripts "sluice/lua/lock"
)

// earlyPart is the part of a tick by which a run may begin too early. Timers on several nodes, and on one node under
// load, are off by some percent; without it, a node that asks every tick would find its own last run not quite over and
// miss every second tick.
const earlyPart = 10

// RunOnce runs fn if no node has run it in this tick, and reports whether fn was called. Every node calls it once per
// tick, at any offset; the calls of all nodes together make at most one successful run per tick on average, and no two
// begin within nine tenths of a tick. Tick is at least MinTTL, in whole milliseconds, and the same on every node.
//
// What it guarantees, and what not:
//   - fn's context ends (cause ErrLeaseLost) within nine tenths of the tick and before another node can begin, whatever
//     the network does. An fn that stops with its context overlaps no other run, unless its process is suspended
//     and goes on for an instant before its timer fires.
//   - When fn returns an error, the tick is given up at once, so that the next node that asks may try. A job that fails
//     everywhere is then tried once per tick and node. The error is returned as it is.
//   - When the node dies or fn panics, the tick stays taken: a job that kills its node must not kill all nodes in turn.
//     No node runs it until the tick is over, so a death costs one run.
//   - When Redis loses the key (a failover, a flush), fn may run again in the same tick. So fn must be safe to repeat
//     and safe to run twice at once; RunOnce saves work, it does not make a job correct.
func (c *Client) RunOnce(
	ctx context.Context, key string, tick time.Duration, fn func(context.Context) error,
) (ran bool, err error) {
	if err := errors.Join(checkKey(key), checkTTL("tick", tick)); err != nil {
		return false, err
	}
	if err := c.ready(ctx); err != nil {
		return false, err
	}
	early := (tick / earlyPart).Truncate(time.Millisecond)
	token, sent := newToken(), time.Now()
	run, err := scripts.RunOnce(ctx, c.rdb, key, token, tick, early)
	if err != nil {
		c.undoBatch(ctx, []string{key}, token, err)
	}
	if err != nil || !run {
		return false, err
	}
	deadline := validUntil(sent, tick.Truncate(time.Millisecond)-early)
	if err := checkDeadline(deadline, sent); err != nil {
		return false, errors.Join(err, c.UnlockMany(ctx, []string{key}, token))
	}
	leased, cancel := context.WithDeadlineCause(ctx, deadline, ErrLeaseLost)
	defer cancel()
	if err := fn(leased); err != nil {
		return true, errors.Join(err, c.UnlockMany(ctx, []string{key}, token))
	}
	return true, nil
}
