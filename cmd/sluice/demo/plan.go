package demo

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// The shares of what buyers do. They are those of a crowd that is impatient and on bad networks.
const (
	earlyShare = 0.01 // of all requests come before the sale opens
	lateShare  = 0.02 // of all requests come after it was closed
	// abandonShare of the requests are given up by the client once they are sent; it asks again with the same key, because
	// it can't know whether it has an order.
	abandonShare = 0.05
	doubleShare  = 0.3 // of the repeated requests are double clicks, at the same moment as the first
	sameKeyShare = 0.5 // of the repeated requests carry the first one's Idempotency-Key, as a good client's do
	// patience is how long a client that gave up waits before it asks again, as a share of the whole rush.
	patience = 0.02
)

// ask is one request of a buyer.
type ask struct {
	buyer   int // index
	key     int // which of the buyer's Idempotency-Keys
	abandon bool
}

func (a ask) user() string           { return fmt.Sprintf("buyer-%06d", a.buyer) }
func (a ask) idempotencyKey() string { return fmt.Sprintf("%s-%d", a.user(), a.key) }

// plan is everything that buyers will ask, in the order in which they do.
type plan struct{ early, rush, late []ask }

// newPlan makes a plan of exactly o.Requests requests. The same options give the same plan.
func newPlan(o Options) plan {
	p := planner{random: rand.New(rand.NewPCG(o.Seed, 0)), buyers: o.Buyers, keys: make([]int, o.Buyers)}
	early := max(1, int(float64(o.Requests)*earlyShare))
	late := max(1, int(float64(o.Requests)*lateShare))
	return plan{early: p.early(early), rush: p.rush(o.Requests - early - late), late: p.late(late)}
}

func (p plan) requests() int { return len(p.early) + len(p.rush) + len(p.late) }

// planner makes up what buyers do.
type planner struct {
	random *rand.Rand
	buyers int
	keys   []int // per buyer: keys used besides the first
}

func (p *planner) early(n int) []ask {
	asks := make([]ask, n)
	for i := range asks {
		asks[i] = ask{buyer: p.random.IntN(p.buyers)}
	}
	return asks
}

// placed is a request with its place in the rush, from 0 to 1.
type placed struct {
	ask
	at float64
}

// rush has every buyer ask once, at any moment, and fills up with what they do again.
func (p *planner) rush(n int) []ask {
	first := make([]float64, p.buyers)
	var all []placed
	add := func(a ask, at float64) {
		if len(all)+1 < n && p.random.Float64() < abandonShare {
			abandoned := a
			abandoned.abandon = true
			all = append(all, placed{abandoned, at})
			at += patience * (0.5 + p.random.Float64())
		}
		all = append(all, placed{a, at})
	}
	for b := range first {
		first[b] = p.random.Float64()
		add(ask{buyer: b}, first[b])
	}
	for len(all) < n {
		b := p.random.IntN(p.buyers)
		at := first[b] // a double click
		if p.random.Float64() >= doubleShare {
			at += (1 - first[b]) * p.random.Float64()
		}
		add(ask{buyer: b, key: p.key(b)}, at)
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	asks := make([]ask, len(all))
	for i, a := range all {
		asks[i] = a.ask
	}
	return asks
}

// key is the buyer's first one or a fresh one.
func (p *planner) key(buyer int) int {
	if p.random.Float64() < sameKeyShare {
		return 0
	}
	p.keys[buyer]++
	return p.keys[buyer]
}

func (p *planner) late(n int) []ask {
	asks := make([]ask, n)
	for i := range asks {
		b := p.random.IntN(p.buyers)
		asks[i] = ask{buyer: b, key: p.key(b)}
	}
	return asks
}
