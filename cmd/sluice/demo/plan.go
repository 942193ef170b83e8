package demo

import (
	"math/rand/v2"
	"time"

	"sluice/internal/buyers"
)

// The shares of what buyers do. They are those of a crowd that is impatient and on bad networks.
const (
	earlyShare   = 0.01 // of all requests come before the sale opens
	lateShare    = 0.02 // of all requests come after it was closed
	abandonShare = 0.05 // of the requests are given up by the client once they are sent
)

// plan is everything that buyers will ask, in the order in which they do.
type plan struct{ early, rush, late []buyers.Request }

// newPlan makes a plan of exactly o.Requests requests. The same options give the same plan.
func newPlan(o Options) plan {
	p := buyers.Planner{
		Sale: saleID, Buyers: o.Buyers, AbandonShare: abandonShare,
		Random: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	early := max(1, int(float64(o.Requests)*earlyShare))
	late := max(1, int(float64(o.Requests)*lateShare))
	return plan{early: p.First(early), rush: p.Rush(o.Requests - early - late), late: p.Again(late)}
}

func (p plan) requests() int { return len(p.early) + len(p.rush) + len(p.late) }

const (
	// rampTime is how long the rush takes to reach its full rate, from rampStart of it: a crowd that pushes through a
	// door, and time for a person to see the first orders.
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
func (p pace) gap(_ int, since time.Duration) time.Duration {
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
