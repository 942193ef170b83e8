package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/lock"
)

// lockTTL is the lease of every candidate's locks: nobody renews or loses one during a round.
const lockTTL = 15 * time.Second

// benchLocks measures package lock against a raw SET NX PX with compare-and-delete and against other libraries, on
// the same server, which writes nothing to disk meanwhile; and what the worker's batch lock costs.
func benchLocks(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	d, err := newLockBench(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) ([]Result, error){d.pairs, d.contention, d.batches} {
		var more []Result
		if more, err = part(ctx); err != nil {
			break
		}
		results = append(results, more...)
	}
	if err = errors.Join(err, d.close(ctx)); err != nil {
		return nil, err
	}
	cost, err := benchWorkerLocks(ctx, s)
	return append(results, cost), err
}

// pairs locks and unlocks, each goroutine a lock of its own.
func (d *lockBench) pairs(ctx context.Context) ([]Result, error) {
	var results []Result
	for _, n := range []int{16, 128} {
		c := comparison{
			name:  fmt.Sprintf("locks-%d", n),
			title: fmt.Sprintf("Lock and unlock, %d at once, each a key of its own", n), unit: "pairs", profiled: 1,
		}
		for _, r := range d.lockers {
			c.candidates = append(c.candidates, candidate{name: r.name, run: func(ctx context.Context) (Work, error) {
				return d.during(ctx, n, func(ctx context.Context, i int) error {
					unlock, err := r.lock(ctx, fmt.Sprintf("{p%02d}:pair:%d", i, i))
					if err != nil {
						return err
					}
					return unlock(ctx)
				})
			}})
		}
		for i := 1; i < len(c.candidates); i++ {
			c.pairs = append(c.pairs, pair{c.candidates[i].name + " / raw", i, 0})
		}
		r, err := c.run(ctx, d.testbed)
		if err != nil {
			return nil, err
		}
		r.reach("ours / raw", r.Ratios[0].Median, 0.85, true)
		results = append(results, r)
	}
	return results, nil
}

// during repeats something from n goroutines for the length of a round.
func (d *lockBench) during(ctx context.Context, n int, once func(ctx context.Context, i int) error) (Work, error) {
	return together(n, d.testbed.opts.length(1), func(i int) func() error {
		return func() error { return once(ctx, i) }
	})
}

const lockBatch = 100

// batches takes a hundred locks at once, against one after the other.
func (d *lockBench) batches(ctx context.Context) ([]Result, error) {
	keys := make([]string, lockBatch)
	for i := range keys {
		keys[i] = fmt.Sprintf("{p00}:batch:%d", i)
	}
	counted := func(w Work, err error) (Work, error) { w.Count *= lockBatch; return w, err }
	c := comparison{
		name: "locks-batch", title: fmt.Sprintf("Batches of %d locks, taken and freed by one goroutine",
			lockBatch), unit: "locks",
		candidates: []candidate{
			{name: "TryLockMany", run: func(ctx context.Context) (Work, error) {
				return counted(d.during(ctx, 1, func(ctx context.Context, _ int) error {
					batch, err := d.ours.TryLockMany(ctx, keys, lock.AllOrNone)
					if err == nil && !batch.Held[0] {
						err = errors.New("the batch was busy")
					}
					return errors.Join(err, d.ours.UnlockMany(ctx, keys, batch.Token))
				}))
			}},
			{name: "one after the other", run: func(ctx context.Context) (Work, error) {
				return counted(d.during(ctx, 1,
					func(ctx context.Context, _ int) error { return d.oneByOne(ctx, keys) }))
			}},
		},
		pairs: []pair{{"TryLockMany / one after the other", 0, 1}},
	}
	r, err := c.run(ctx, d.testbed)
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, "a batch is 2 round trips: one to take it, one to free it")
	r.reach("batch / sequential", r.Ratios[0].Median, 25, true)
	return []Result{r}, nil
}

func (d *lockBench) oneByOne(ctx context.Context, keys []string) error {
	locked := make([]lock.Hold, 0, len(keys))
	for _, key := range keys {
		h, err := d.ours.Mutex(key + ":m").TryLock(ctx)
		if err != nil {
			return err
		}
		locked = append(locked, h)
	}
	for _, h := range locked {
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reach notes a figure beside the one that was asked for, and says when it falls short.
func (r *Result) reach(what string, got, want float64, atLeast bool) {
	word, sign := "reached", "at least"
	if !atLeast {
		sign = "at most"
	}
	if atLeast && got < want || !atLeast && got > want {
		word = "FALLS SHORT"
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%s: %.2f, wanted %s %.2f: %s", what, got, sign, want, word))
}
