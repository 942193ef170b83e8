package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"sluice/internal/loadgen"
)

// benchLatency measures how long buyers wait who arrive at random, whether or not the server keeps up. First it finds
// the capacity, from POST to row with a worker running, in a closed loop. Then it sends so many percent of that to
// Sluice (api and worker), and as many requests to the handler that only parses and answers.
func benchLatency(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	err = s.withHandlers(ctx, func(full, quick servedHandler) (err error) {
		full.name = "sluice"
		b := latencyBench{workload: h, full: full, quick: quick, connections: slices.Max(s.opts.Connections)}
		results, err = b.run(ctx)
		return err
	})
	return results, err
}

type latencyBench struct {
	workload    *workload
	full, quick servedHandler
	connections int
}

// wantedP99 is how many times as long as at the bare handler an accept may take, at 70 % of capacity.
const (
	wantedP99 = 3.0
	wantedAt  = 70
)

func (b *latencyBench) run(ctx context.Context) (results []Result, err error) {
	capacity := b.workload.testbed.opts.Rate
	if capacity == 0 {
		found, err := b.measureCapacity(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, found)
		capacity = found.Candidates[0].PerSecond.Median
	}
	for _, percent := range b.workload.testbed.opts.Loads {
		result, err := b.measureLoad(ctx, capacity, percent)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

func (b *latencyBench) measureCapacity(ctx context.Context) (Result, error) {
	next := loadgen.Config{Connections: b.connections}
	c := comparison{
		name:  "capacity",
		title: fmt.Sprintf("Capacity: orders from POST to row, %d kept connections, closed loop", b.connections),
		unit:  "orders",
		candidates: []candidate{
			b.workload.endToEnd(b.full, next, b.workload.oneWorker()),
			b.quick.candidate(next),
		},
		pairs: []pair{{"sluice / parse and answer", 0, 1}},
	}
	return c.run(ctx, b.workload.testbed)
}

func (b *latencyBench) measureLoad(ctx context.Context, capacity float64, percent int) (Result, error) {
	rate := capacity * float64(percent) / 100
	c := comparison{
		name: fmt.Sprintf("latency-%d", percent),
		title: fmt.Sprintf("Waiting time at %d %% of capacity: %.0f orders/s, arriving at random on %d connections",
			percent, rate, b.connections),
		unit: "orders",
		candidates: []candidate{
			b.candidate(b.full, rate, b.workload.startWorker),
			b.candidate(b.quick, rate, noWorker),
		},
	}
	result, err := c.run(ctx, b.workload.testbed)
	if err != nil {
		return result, err
	}
	result.Load = percent
	ratio := result.Candidates[0].Latency.P99 / max(result.Candidates[1].Latency.P99, 1)
	what := fmt.Sprintf("p99 of sluice / p99 of parse and answer at %d %%", percent)
	if percent == wantedAt {
		result.reach(what, ratio, wantedP99, false)
	} else {
		result.Notes = append(result.Notes, fmt.Sprintf("%s: %.2f", what, ratio))
	}
	return result, nil
}

// candidate sends a load in the open model. Only accepts have waiting times; who was shed is counted.
func (b *latencyBench) candidate(at servedHandler, rate float64, start starter) candidate {
	s := b.workload.testbed
	var sent *loadgen.Result
	stop := func() {}
	return candidate{
		name: at.name,
		prepare: func(ctx context.Context, share float64) error {
			if err := b.workload.empty(ctx); err != nil {
				return err
			}
			return s.buyers.prepare(loadgen.Config{
				URL: "http://" + at.at.addr, Sales: []string{saleID}, Connections: b.connections, Rate: rate,
				WarmUp: seconds(s.opts.LoadSeconds * share * warmUp), Length: seconds(s.opts.LoadSeconds * share),
				Seed: s.opts.Seed, First: s.newBuyers(), Keys: s.opts.Keys,
			})
		},
		run: func(ctx context.Context) (work Work, err error) {
			if stop, err = start(ctx); err != nil {
				return Work{}, err
			}
			if sent, err = s.buyers.start(); err != nil {
				stop()
				return Work{}, err
			}
			return workOf(sent), nil
		},
		check: func(ctx context.Context, _ *Work) error {
			defer stop()
			if !at.admit {
				return nil
			}
			if err := awaitDrained(ctx, s.waiting); err != nil {
				return err
			}
			return s.checkStored(ctx, sent)
		},
	}
}

func workOf(r *loadgen.Result) Work {
	return Work{
		Count: r.Accepts.Count, Took: r.Took, Latency: quantiles(r.Accepts), Shed: r.Sheds.Count, NotSent: r.NotSent,
		Late: r.Late.P99,
	}
}

// checkStored compares the rows with the accepts. An order whose answer was lost may stand or not.
func (s *testbed) checkStored(ctx context.Context, sent *loadgen.Result) error {
	accepts := sent.Statuses[http.StatusAccepted]
	if sent.Failures == 0 {
		return s.checkRows(ctx, "orders", accepts)
	}
	rows, err := s.countRows(ctx, "orders")
	if err == nil && (rows < accepts || rows > accepts+sent.Failures) {
		err = fmt.Errorf("the counts do not add up: %d accepts and %d lost answers, but %d rows", accepts, sent.Failures,
			rows)
	}
	return err
}

// starter starts what stores orders; stop ends it, and returns when it has ended.
type starter func(ctx context.Context) (stop func(), err error)

func noWorker(context.Context) (stop func(), err error) { return func() {}, nil }
