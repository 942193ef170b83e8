package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

func dialUnix(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return d.DialContext(ctx, "unix", path)
}

var _ = rueidis.ClientOption{DialCtxFn: dialUnix} // the form that it must have

// waiters is how many want the one lock.
const waiters = 8

// handOvers measures one lock that all want all the time: from the instant at which the holder's unlock was on the
// server, as near as a client can tell (half way through the call), until the next one's lock has returned.
func (d *duel) handOvers(ctx context.Context) ([]Result, error) {
	c := contest{
		name: "locks-contended", title: fmt.Sprintf("One lock that %d want; latency from unlock on the server to the next one's lock", waiters),
		unit: "hand-overs",
		contestants: []contestant{{name: "PING (a round trip)", run: func(ctx context.Context) (Work, error) {
			return d.pings(ctx)
		}}},
	}
	fair := make([]float64, 0, d.site.opts.Rounds+1)
	for _, r := range d.rivals {
		c.contestants = append(c.contestants, contestant{name: r.name, run: func(ctx context.Context) (Work, error) {
			work, spread, err := d.contended(ctx, r)
			if r.name == "ours, fair" {
				fair = append(fair, spread)
			}
			return work, err
		}})
	}
	r, err := c.hold(ctx, d.site)
	if err != nil {
		return nil, err
	}
	rtt := r.Contestants[0].Latency.P50
	for _, s := range r.Contestants[2:4] {
		r.reach(s.Name+", hand-over p50 in round trips", s.Latency.P50/rtt, 1.5, false)
	}
	r.reach("fair wait p99/p50", spreadOf(fair).Median, 1.1, false)
	return []Result{r}, nil
}

// pings is the measure of a round trip: one at a time.
func (d *duel) pings(ctx context.Context) (Work, error) {
	var took []uint32
	w, err := d.during(ctx, 1, func(ctx context.Context, _ int) error {
		began := time.Now()
		err := d.rdb.Ping(ctx).Err()
		took = append(took, micros(time.Since(began)))
		return err
	})
	w.Latency = quantilesOf(took)
	return w, err
}

// longestWait ends a round in which somebody is never woken.
const longestWait = 5 * time.Second

// contended returns the hand-overs of a round, and p99/p50 of the waits.
func (d *duel) contended(ctx context.Context, r rival) (Work, float64, error) {
	var mu sync.Mutex // protects the rest
	var freed time.Time
	var gaps, waits []uint32
	w, err := d.during(ctx, waiters, func(ctx context.Context, _ int) error {
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, longestWait)
		defer cancel()
		unlock, err := r.lock(bounded, "{p00}:contended")
		got := time.Now()
		if err != nil {
			return err
		}
		mu.Lock()
		last := freed
		waits = append(waits, micros(got.Sub(asked)))
		mu.Unlock()
		began := time.Now()
		err = unlock(ctx)
		ended := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if !last.IsZero() && got.After(last) {
			gaps = append(gaps, micros(got.Sub(last)))
		}
		freed = began.Add(ended.Sub(began) / 2)
		return err
	})
	w.Latency = quantilesOf(gaps)
	q := quantilesOf(waits)
	return w, q.P99 / max(q.P50, 1), err
}

func micros(d time.Duration) uint32 { return uint32(max(d.Microseconds(), 0)) }
