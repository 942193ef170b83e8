package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// benchOrders measures accepted orders over HTTP against a handler that only parses and answers.
func benchOrders(ctx context.Context, s *Site, _ *Report) ([]Result, error) {
	var results []Result
	err := s.withStands(ctx, func(full, quick stand) error {
		for _, connections := range s.opts.Connections {
			flood := Flood{Connections: connections}
			c := contest{
				name:        fmt.Sprintf("orders-%d", connections),
				title:       fmt.Sprintf("Orders over HTTP, %d kept connections", connections),
				unit:        "orders",
				contestants: []contestant{full.contestant(flood), quick.contestant(flood)},
				pairings:    []pairing{{"accepted / parse and answer", 0, 1}},
			}
			result, err := c.hold(ctx, s)
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return nil
	})
	return results, err
}

// assumedRate stands in where the orders section was left out.
const assumedRate = 3000

// benchLatency measures how long a buyer waits at a moderate load.
func benchLatency(ctx context.Context, s *Site, report *Report) ([]Result, error) {
	rate := s.opts.Rate
	if rate == 0 {
		rate = report.acceptedPerSecond(assumedRate) / 3
	}
	const connections = 64 // enough that an arrival mostly finds its connection free
	flood := Flood{Connections: connections, Rate: rate}
	var result Result
	err := s.withStands(ctx, func(full, quick stand) (err error) {
		c := contest{
			name:        "latency",
			title:       fmt.Sprintf("Waiting time at %.0f orders/s, arriving at random on %d connections", rate, connections),
			unit:        "orders",
			contestants: []contestant{full.contestant(flood), quick.contestant(flood)},
		}
		result, err = c.hold(ctx, s)
		return err
	})
	return []Result{result}, err
}

// stand is one of the two handlers, listening.
type stand struct {
	site  *Site
	name  string
	at    *listening
	admit bool // orders reach Redis
}

// withStands opens both handlers, and closes them when fn returns.
func (s *Site) withStands(ctx context.Context, fn func(full, quick stand) error) (err error) {
	a, err := newAPI(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	full, err := listen(ctx, a.full)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, full.close()) }()
	quick, err := listen(ctx, a.quick)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, quick.close()) }()
	return fn(stand{s, "accepted", full, true}, stand{s, "parse and answer", quick, false})
}

// contestant sends floods to the stand. The flood tells how many buyers come, and how fast; the rest is filled in.
func (t stand) contestant(f Flood) contestant {
	f.Addr, f.Path, f.Seed, f.Keys = t.at.addr, ordersPath, t.site.opts.Seed, t.site.opts.Keys
	return contestant{
		name: t.name,
		prepare: func(ctx context.Context, share float64) error {
			f.First, f.Length = t.site.newBuyers(), t.site.opts.length(share)
			if err := t.site.clear(ctx); err != nil {
				return err
			}
			return t.site.buyers.gather(f)
		},
		run:   func(context.Context) (Work, error) { return t.site.flood() },
		check: t.check,
	}
}

// flood lets the gathered buyers go.
func (s *Site) flood() (Work, error) {
	tally, err := s.buyers.release()
	if err != nil {
		return Work{}, err
	}
	accepted, err := tally.accepted()
	return Work{Count: accepted, Took: tally.Took, Latency: tally.Latency}, err
}

func (t stand) check(ctx context.Context, w *Work) error {
	told := w.Count
	if !t.admit {
		told = 0
	} else if err := t.site.noteScript(ctx, w); err != nil {
		return err
	}
	return t.site.checkAccepts(ctx, told)
}

// together runs so many goroutines that call one thing again and again until the time is over, and counts the calls.
func together(n int, length time.Duration, caller func(i int) func() error) (Work, error) {
	counts, errs := make([]int64, n), make([]error, n)
	began := time.Now()
	until := began.Add(length)
	var running sync.WaitGroup
	for i := range n {
		call := caller(i)
		running.Go(func() {
			for errs[i] == nil && time.Now().Before(until) {
				if errs[i] = call(); errs[i] == nil {
					counts[i]++
				}
			}
		})
	}
	running.Wait()
	w := Work{Took: time.Since(began)}
	for _, count := range counts {
		w.Count += count
	}
	return w, errors.Join(errs...)
}
