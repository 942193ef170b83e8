package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// waiters is how many want the one lock.
	waiters = 8
	// handOverTrips is how many round trips a hand-over may take.
	handOverTrips = 1.5
	// longestWait ends a round in which somebody is never woken.
	longestWait = 30 * time.Second
	// heldFor is about what a small transaction takes.
	heldFor = 2 * time.Millisecond
	// pingEvery is how often a round trip is measured beside.
	pingEvery = 2 * time.Millisecond
)

// contention measures one lock that all want all the time: for how long it is nobody's, between two holders. Once
// each frees it at once, so that the cores are what there is too little of; and once each works with it for a moment.
//
// The lock is free from the instant at which the unlock was on the server, as near as a client can know: half way
// through the call. The aim of 1.5 round trips counts from there: a message to the next one and its claim. The time
// from the call of unlock is reported besides, which is no guess, and half a round trip longer.
func (d *lockBench) contention(ctx context.Context) (results []Result, err error) {
	for _, held := range []time.Duration{0, heldFor} {
		r, err := d.contend(ctx, held)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func (d *lockBench) contend(ctx context.Context, held time.Duration) (Result, error) {
	c := comparison{
		name: "locks-contended-" + held.String(), unit: "hand-overs", profiled: 1,
		title: fmt.Sprintf("One lock that %d want and each holds for %s; latency from unlock on the server to the next one's lock", waiters, held),
	}
	seen := make([]rounds, len(d.lockers))
	for i, r := range d.lockers {
		c.candidates = append(c.candidates, candidate{name: r.name, run: func(ctx context.Context) (Work, error) {
			work, round, err := d.contended(ctx, r, held)
			seen[i].add(round)
			return work, err
		}})
	}
	r, err := c.run(ctx, d.testbed)
	if err != nil {
		return Result{}, err
	}
	for i := range seen {
		seen[i] = seen[i].counted()
	}
	trip := spreadOf(seen[0].ping).Median
	for _, rounds := range seen {
		trip = min(trip, spreadOf(rounds.ping).Median)
	}
	trip = max(trip, 1)
	r.Notes = append(r.Notes,
		fmt.Sprintf("a round trip is a PING beside, p50, of whoever has the quickest: %.0f µs", trip))
	for i, rounds := range seen {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%s: hand-over p50 %.1f round trips, %.1f from the call of unlock (PING beside it %.0f µs); wait p99/p50 %.2f",
				d.lockers[i].name, spreadOf(rounds.freed).Median/trip, spreadOf(rounds.called).Median/trip,
				spreadOf(rounds.ping).Median, spreadOf(rounds.waits).Median))
	}
	for i := 1; i <= 2; i++ {
		r.reach(d.lockers[i].name+", hand-over p50 in round trips", spreadOf(seen[i].freed).Median/trip, handOverTrips,
			false)
		r.reach("the same from the call of unlock", spreadOf(seen[i].called).Median/trip, handOverTrips+0.5, false)
	}
	r.reach("fair wait p99/p50", spreadOf(seen[2].waits).Median, 1.1, false)
	return r, nil
}

// rounds is what a candidate's rounds had.
type rounds struct{ ping, freed, called, waits []float64 }

func (r *rounds) add(more round) {
	r.ping = append(r.ping, more.ping)
	r.freed = append(r.freed, more.freed)
	r.called = append(r.called, more.called)
	r.waits = append(r.waits, more.waits)
}

// counted leaves out the warm-up.
func (r *rounds) counted() rounds {
	return rounds{ping: r.ping[1:], freed: r.freed[1:], called: r.called[1:], waits: r.waits[1:]}
}

// round is one of them, p50 in µs of a PING meanwhile and of the hand-overs, from unlock on the server and from its
// call; and p99/p50 of the waits.
type round struct{ ping, freed, called, waits float64 }

// turn is one hold of the lock: since when, when its unlock was called, and when it was freed.
type turn struct{ asked, got, called, freed time.Time }

func (d *lockBench) contended(ctx context.Context, r locker, held time.Duration) (Work, round, error) {
	var mu sync.Mutex // protects turns
	var turns []turn
	stop := d.pingBeside(ctx)
	w, err := d.during(ctx, waiters, func(ctx context.Context, _ int) error {
		t := turn{asked: time.Now()}
		bounded, cancel := context.WithTimeout(ctx, longestWait)
		defer cancel()
		unlock, err := r.lock(bounded, "{p00}:contended")
		t.got = time.Now()
		if err != nil {
			return err
		}
		if held > 0 {
			time.Sleep(held)
		}
		t.called = time.Now()
		err = unlock(ctx)
		t.freed = t.called.Add(time.Since(t.called) / 2)
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, t)
		return err
	})
	ping := stop()
	waits := make([]uint32, 0, len(turns))
	for _, t := range turns {
		waits = append(waits, micros(t.got.Sub(t.asked)))
	}
	wait := quantilesOf(waits)
	slices.SortFunc(turns, func(a, b turn) int { return a.got.Compare(b.got) })
	w.Latency = quantilesOf(gaps(turns, func(t turn) time.Time { return t.freed }))
	called := quantilesOf(gaps(turns, func(t turn) time.Time { return t.called }))
	return w, round{ping, w.Latency.P50, called.P50, wait.P99 / max(wait.P50, 1)}, err
}

// gaps are the times between one turn and the next, in µs, from an instant of the former. The next holder may have
// the lock before half of the unlock has passed, which is a guess. Such a gap counts as none.
func gaps(turns []turn, from func(turn) time.Time) []uint32 {
	var gaps []uint32
	for i := 1; i < len(turns); i++ {
		gaps = append(gaps, micros(turns[i].got.Sub(from(turns[i-1]))))
	}
	return gaps
}

// pingBeside measures round trips until it is stopped, and then returns their p50 in µs.
func (d *lockBench) pingBeside(ctx context.Context) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	var took []uint32
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if d.rdb.Ping(ctx).Err() == nil {
				took = append(took, micros(time.Since(began)))
			}
			time.Sleep(pingEvery)
		}
	})
	return func() float64 {
		cancel()
		running.Wait()
		return quantilesOf(took).P50
	}
}

func micros(d time.Duration) uint32 { return uint32(max(d.Microseconds(), 0)) }
