package chaos

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/buyers"
	"sluice/pipeline"
)

const (
	// settleLimit bounds how long the end may take once nothing is broken any more. What is promised is 20 s for a dead
	// worker's orders; a machine of two cores with a backlog of a minute needs longer.
	settleLimit = 2 * time.Minute
	settleEvery = 100 * time.Millisecond
)

// settle waits until every process runs and nothing is left to do.
func (r *run) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	began := time.Now()
	for {
		left, err := r.left(ctx)
		switch {
		case err == nil && left == "":
			r.settling = time.Since(began)
			return
		case ctx.Err() != nil:
			r.unsettled = fmt.Sprintf("after %s: %s %s", settleLimit, left, inParentheses(err))
			return
		}
		buyers.Sleep(ctx, settleEvery)
	}
}

// left says what is still to be done, or "".
func (r *run) left(ctx context.Context) (string, error) {
	for _, p := range r.system.processes {
		if _, err := p.running(ctx); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	var length, pending int64
	for p := range pipeline.Partition(partitions) {
		stream := pipeline.DefaultKeys.Orders(p)
		n, err := r.system.rdb.XLen(ctx, stream).Result()
		if err != nil {
			return "", err
		}
		group, err := r.system.rdb.XPending(ctx, stream, pipeline.Group).Result()
		if err != nil {
			return "", err
		}
		length, pending = length+n, pending+group.Count
	}
	var releases int64
	if err := r.system.pool.QueryRow(ctx,
		`select count(*) from releases where applied_at is null`).Scan(&releases); err != nil {
		return "", err
	}
	if length == 0 && pending == 0 && releases == 0 {
		return r.system.prepared(ctx)
	}
	return fmt.Sprintf("%d events in the streams, %d of them pending, %d releases not applied", length, pending,
		releases), nil
}

// prepared says what a node that was killed has left behind, or "": transactions that it had prepared and that Citus has
// not ended yet.
func (s *system) prepared(ctx context.Context) (string, error) {
	if s.servers.Citus == nil {
		return "", nil
	}
	n, err := s.servers.Citus.Prepared(ctx)
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("%d prepared transactions", n), nil
}
