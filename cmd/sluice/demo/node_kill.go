package demo

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"sluice/internal/buyers"
)

const (
	nodeSoldBefore = 8                // an eighth of the stock is sold before the node dies
	nodeAway       = time.Second      // for which it is dead; its restart takes some tenths more
	preparedLimit  = 20 * time.Second // within it Citus ends what the node had prepared
)

// NodeKill is the death of the node of Postgres that has the sale, and its return.
type NodeKill struct {
	Node     string `json:"node"`
	AwayMS   int64  `json:"away_ms"`
	Accepted int    `json:"accepted"` // orders, by Redis alone, while it was away
}

// killNode kills the node that has the sale, in the rush, and restarts it.
func (s *session) killNode(ctx context.Context) error {
	defer close(s.nodeBack)
	if !s.opts.Citus {
		return nil
	}
	if err := s.awaitSold(ctx, s.opts.Stock/nodeSoldBefore); err != nil {
		return err
	}
	node, err := s.stack.Servers.Citus.WorkerOf(ctx, "orders", saleID)
	if err != nil {
		return err
	}
	before, began := s.history.Tally().Orders, time.Now()
	if err := node.Kill(); err != nil {
		return err
	}
	buyers.Sleep(ctx, nodeAway)
	accepted := s.history.Tally().Orders - before
	if err := errors.Join(node.Restart(ctx), ctx.Err()); err != nil {
		return err
	}
	s.node = &NodeKill{Node: path.Base(node.Dir()), AwayMS: time.Since(began).Milliseconds(), Accepted: accepted}
	s.narrator.notef("✗ the node of Postgres that has the sale was dead for %s (kill -9), and is back: %s accepted meanwhile",
		seconds(s.node.AwayMS), plural(accepted, "order"))
	return nil
}

// awaitNode waits, where a node has died, until all but what the dead worker holds is stored: buyers who cancel want to
// find their orders.
func (s *session) awaitNode(ctx context.Context) error {
	if !s.opts.Citus {
		return nil
	}
	for until := time.Now().Add(drainLimit); time.Now().Before(until) && ctx.Err() == nil; buyers.Sleep(ctx, countEvery) {
		held := len(s.inFlightAtKill())
		length, _, err := s.queue(ctx)
		if err != nil || held > 0 && int(length) <= held {
			return err
		}
	}
	return ctx.Err() // the checks say what is left
}

// nodeCheck is what must be true of the node: what it had prepared for a commit is committed or rolled back.
func (s *session) nodeCheck(ctx context.Context) buyers.Check {
	c := buyers.Check{Name: "nothing that the killed node of Postgres had begun is left open"}
	for until := time.Now().Add(preparedLimit); ; buyers.Sleep(ctx, countEvery) {
		left, err := s.stack.Servers.Citus.Prepared(ctx)
		c.OK = err == nil && left == 0
		c.Detail = fmt.Sprintf("%d prepared transactions", left)
		if err != nil {
			c.Detail = err.Error()
		}
		if c.OK || ctx.Err() != nil || time.Now().After(until) {
			return c
		}
	}
}
