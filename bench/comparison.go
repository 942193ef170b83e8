package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Work is what one candidate did in one round.
type Work struct {
	Count   int64         // orders, answers or rows
	Took    time.Duration // for all of them
	CPU     Usage         // used meanwhile
	Batch   float64       // requests per script call; 0 where there was none
	Script  float64       // Redis' own time in the script per request, µs
	Latency Quantiles
	Shed    int64   // requests that were told to come again later
	NotSent int64   // requests for which the buyers had no connection, nor room to wait for one
	Late    float64 // p99 of how late the buyers' own schedule was, µs
}

func (w Work) rate() float64 { return float64(w.Count) / w.Took.Seconds() }

// perUnit is CPU time in µs for each thing done.
func (w Work) perUnit(cpu time.Duration) float64 {
	return float64(cpu.Nanoseconds()) / 1000 / float64(max(w.Count, 1))
}

// share is CPU time as a part of one core.
func (w Work) share(cpu time.Duration) float64 { return cpu.Seconds() / w.Took.Seconds() }

// candidate is one thing that is measured. Only run is on the clock; check may add to what run found.
type candidate struct {
	name    string
	prepare func(ctx context.Context, share float64) error // share of a full round: less in the warm-up
	run     func(ctx context.Context) (Work, error)
	check   func(ctx context.Context, w *Work) error
}

// pair names two candidates, by their place, whose ratio is reported.
type pair struct {
	says        string
	of, against int
}

// comparison measures its candidates interleaved.
type comparison struct {
	name       string // short; part of a profile's file name
	title      string
	unit       string // what is counted
	candidates []candidate
	pairs      []pair
	profiled   int // the candidate that a CPU profile is made of, in its last round
}

// warmUp is the part of a full round that precedes the counted ones: it opens connections, loads scripts and prepares
// statements.
const warmUp = 0.25

// run runs the rounds. Every second one goes backwards, so that a machine that slows down or warms up favours nobody.
func (c *comparison) run(ctx context.Context, testbed *testbed) (Result, error) {
	rounds := make([][]Work, len(c.candidates))
	for round := range testbed.opts.Rounds + 1 {
		testbed.progress.step(c.title, round, testbed.opts.Rounds)
		for step := range c.candidates {
			i := step
			if round%2 == 1 {
				i = len(c.candidates) - 1 - step
			}
			work, err := c.measure(ctx, testbed, i, round)
			if err != nil {
				return Result{}, fmt.Errorf("%s, round %d: %w", c.candidates[i].name, round, err)
			}
			if round > 0 {
				rounds[i] = append(rounds[i], work)
			}
		}
	}
	testbed.progress.done()
	return c.result(rounds), nil
}

// measure gives one candidate its turn.
func (c *comparison) measure(ctx context.Context, testbed *testbed, i, round int) (Work, error) {
	who, share := &c.candidates[i], 1.0
	if round == 0 {
		share = warmUp
	}
	if who.prepare != nil {
		if err := who.prepare(ctx, share); err != nil {
			return Work{}, err
		}
	}
	profile := ""
	if i == c.profiled && round == testbed.opts.Rounds {
		profile = testbed.opts.Profile
	}
	work, err := who.onTheClock(ctx, testbed, profile, c.name)
	if err != nil || who.check == nil {
		return work, err
	}
	return work, who.check(ctx, &work)
}

// onTheClock runs a candidate between two looks at everybody's CPU time.
func (w *candidate) onTheClock(ctx context.Context, testbed *testbed, profile, comparison string) (Work, error) {
	runtime.GC() // what the last candidate left behind is not on this one's clock
	stopProfile, err := startProfile(profile, comparison)
	if err != nil {
		return Work{}, err
	}
	before, err := testbed.usage()
	if err != nil {
		return Work{}, errors.Join(err, stopProfile())
	}
	work, err := w.run(ctx)
	if err != nil {
		return Work{}, errors.Join(err, stopProfile())
	}
	after, err := testbed.usage()
	work.CPU = after.since(before)
	return work, errors.Join(err, stopProfile())
}

func (c *comparison) result(rounds [][]Work) Result {
	r := Result{Name: c.name, Title: c.title, Unit: c.unit}
	for i, who := range c.candidates {
		r.Candidates = append(r.Candidates, standing(who.name, rounds[i]))
	}
	for _, p := range c.pairs {
		of, against := rounds[p.of], rounds[p.against]
		r.Ratios = append(r.Ratios, Ratio{Says: p.says, Spread: ratioOf(of, against), CPU: cpuRatioOf(of, against)})
	}
	return r
}
