package demo

import (
	"context"
	"sync"
	"time"
)

const (
	// rampTime is how long the rush takes to reach its full rate, from rampStart of it: a crowd that pushes through a door,
	// and time for a person to see the first orders.
	rampTime  = 2 * time.Second
	rampStart = 0.15
	// shortestRush is how long even a small rush takes, so that there is a middle in which a worker can be killed.
	shortestRush = 4 * time.Second
)

// pace says when each request of a rush is due.
type pace struct {
	rate float64       // per second, once the ramp is over
	ramp time.Duration // 0: full rate from the start
}

func newPace(requests, rate int) pace {
	most := float64(requests) / shortestRush.Seconds()
	return pace{rate: min(float64(rate), most), ramp: rampTime}
}

// gap is the time to the next request, at some time after the start.
func (p pace) gap(since time.Duration) time.Duration {
	share := 1.0
	if since < p.ramp {
		share = rampStart + (1-rampStart)*since.Seconds()/p.ramp.Seconds()
	}
	return time.Duration(float64(time.Second) / (p.rate * share))
}

// takes is how long so many requests take where the API keeps up.
func (p pace) takes(requests int) time.Duration {
	full := time.Duration(float64(requests) / p.rate * float64(time.Second))
	return full + time.Duration(float64(p.ramp)*(1-rampStart)/2) // what the ramp costs
}

// crowd sends asks as many buyers do: each when it is due, whether or not others are still waiting for their answers.
type crowd struct {
	client  *client
	history *history
}

// rush sends asks at a pace and returns when each has its answer. When the API is slower than the pace, requests queue as
// in any crowd: no more than clientConns are under way.
func (c *crowd) rush(ctx context.Context, asks []ask, p pace) {
	due := make(chan ask)
	var senders sync.WaitGroup
	for range min(clientConns, len(asks)) {
		senders.Go(func() {
			for a := range due {
				c.ask(ctx, a)
			}
		})
	}
	began := time.Now()
	var at time.Duration
	for _, a := range asks {
		// Shorter waits than a millisecond cost more than they give: requests come in small swarms.
		if wait := at - time.Since(began); wait > time.Millisecond {
			sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			break
		}
		due <- a
		at += p.gap(at)
	}
	close(due)
	senders.Wait()
}

// ask sends one request, and again until it has an answer that says yes or no, as a good client does. A client that gives
// up does not: its next ask is planned.
func (c *crowd) ask(ctx context.Context, a ask) {
	pause := firstPause
	for attempt := range attempts {
		c.history.sent(attempt > 0)
		got := c.client.order(ctx, a)
		switch {
		case got.definite():
			c.history.told(a, got)
			return
		case ctx.Err() != nil:
			return
		case a.abandon && got.code == "":
			c.history.gaveUp(a)
			return
		case attempt == attempts-1 || !passing(got):
			c.history.never(a, got)
			return
		}
		sleep(ctx, pause)
		pause *= 2
	}
}

// passing reports whether asking again may help: there was no answer, or one that asks for patience.
func passing(got answer) bool {
	switch got.code {
	case "", "overloaded", "store-unavailable", "sale-not-loaded", "backlog-full":
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
