package buyers

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	doubleShare = 0.3 // of the repeated requests are double clicks, at the same moment as the first
	// returnAfter is how long a client that gave up waits before it asks again, as a share of the whole rush.
	returnAfter = 0.02
)

// Planner makes up what the buyers of a sale of single units ask. The same seed gives the same requests. Half of the
// repeated ones carry the first one's Idempotency-Key, as a good client's do; the other half try for a second order.
type Planner struct {
	Sale   string
	Buyers int
	// AbandonShare of the requests are given up by the client once they are sent; it asks again with the same key,
	// because it can't know whether it has an order.
	AbandonShare float64
	Random       *rand.Rand

	repeats int
	keys    map[uint32]int16 // used besides the first
}

// First are n first requests of any buyers.
func (p *Planner) First(n int) []Request {
	return p.some(n, func(uint32) int16 { return 0 })
}

// Again are n requests of any buyers, with keys as of a repeated request.
func (p *Planner) Again(n int) []Request { return p.some(n, p.key) }

func (p *Planner) some(n int, key func(uint32) int16) []Request {
	requests := make([]Request, n)
	for i := range requests {
		buyer := uint32(p.Random.IntN(p.Buyers))
		requests[i] = p.request(buyer, key(buyer))
	}
	return requests
}

func (p *Planner) request(buyer uint32, key int16) Request {
	return Request{Sale: p.Sale, Buyer: buyer, Key: key, Quantity: 1}
}

// Rush has every buyer ask once, at any moment, and fills up with what they do again.
func (p *Planner) Rush(n int) []Request {
	type timed struct {
		Request
		at float64 // in the rush, from 0 to 1
	}
	first := make([]float64, p.Buyers)
	var all []timed
	add := func(r Request, at float64) {
		if len(all)+1 < n && p.Random.Float64() < p.AbandonShare {
			abandoned := r
			abandoned.Abandon = true
			all = append(all, timed{abandoned, at})
			at += returnAfter * (0.5 + p.Random.Float64())
		}
		all = append(all, timed{r, at})
	}
	for buyer := range first {
		first[buyer] = p.Random.Float64()
		add(p.request(uint32(buyer), 0), first[buyer])
	}
	for len(all) < n {
		buyer := uint32(p.Random.IntN(p.Buyers))
		at := first[buyer] // a double click
		if p.Random.Float64() >= doubleShare {
			at += (1 - first[buyer]) * p.Random.Float64()
		}
		add(p.request(buyer, p.key(buyer)), at)
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	requests := make([]Request, len(all))
	for i, r := range all {
		requests[i] = r.Request
	}
	return requests
}

// key of a repeated request: the buyer's first one or, every second time, a fresh one.
func (p *Planner) key(buyer uint32) int16 {
	if p.repeats++; p.repeats%2 == 0 {
		return 0
	}
	if p.keys == nil {
		p.keys = map[uint32]int16{}
	}
	p.keys[buyer]++
	return p.keys[buyer]
}

// Pace says how fast a list is worked off.
type Pace struct {
	AtOnce int // at most
	// Gap is the time from one to the next, after so many and so long since the start; nil: none.
	Gap func(sent int, since time.Duration) time.Duration
}

// Each does something for each of a list, in its order, and returns when all is done or ctx has ended. What is due
// waits while as many as may be are under way.
func Each[T any](ctx context.Context, list []T, p Pace, do func(T)) {
	due := make(chan T)
	var busy sync.WaitGroup
	for range min(p.AtOnce, len(list)) {
		busy.Go(func() {
			for item := range due {
				do(item)
			}
		})
	}
	began := time.Now()
	var at time.Duration
	for i, item := range list {
		// Shorter waits than a millisecond cost more than they give: requests come in small groups.
		if wait := at - time.Since(began); wait > time.Millisecond {
			Sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			break
		}
		due <- item
		if p.Gap != nil {
			at += p.Gap(i+1, at)
		}
	}
	close(due)
	busy.Wait()
}
