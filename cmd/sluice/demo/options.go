package demo

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"sluice/pipeline"
)

// Limits of a demo: small enough for a laptop, large enough that there is something to prove.
const (
	minRequests = 200
	maxRequests = 1_000_000 // some minutes at the highest rate, and 100 MB of memory for what buyers remember
	minStock    = 10        // with fewer there is hardly a moment in which orders are in flight at a worker
	minRate     = 100       // requests per second
	maxRate     = 50_000    // more than one machine sends
	// paySlack is the time to pay that is left after the rush, on a machine that keeps up with it, and payPerUnit
	// what each unit adds to it: for those who join the waitlist, and for the payments.
	paySlack     = 5 * time.Second
	payPerUnit   = 2 * time.Millisecond
	maxPayWithin = 24 * time.Hour
	// nodeSlack is added where a node of Postgres dies: until it is back, and its backlog is stored.
	nodeSlack = 10 * time.Second
	// requestsPerBuyer is the least: the first request of each, and as many again for retries and duplicates.
	requestsPerBuyer = 2
)

// Options say how large the sale is. Zero values get the defaults.
type Options struct {
	Requests int // HTTP requests in all; default 20,000
	Buyers   int // default two fifths of Requests
	Stock    int // units, one per buyer; default 1,000, at most Buyers, so that it sells out
	Rate     int // requests per second at most; default 4,000
	// PayWithin is how long buyers have to pay. The rush must be over by then. Default: as long as the rush should
	// take, and some seconds besides (paySlack).
	PayWithin time.Duration
	Seed      uint64 // of everything random; default: a new one each time
	Citus     bool   // on a Postgres of three nodes; the one that has the sale dies in the rush and comes back
}

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	if o.Requests == 0 {
		o.Requests = 20_000
	}
	if o.Buyers == 0 {
		o.Buyers = o.Requests * 2 / 5
	}
	if o.Stock == 0 {
		o.Stock = 1000
	}
	if o.Rate == 0 {
		o.Rate = 4000
	}
	if o.Seed == 0 {
		o.Seed = newSeed()
	}
	if o.PayWithin == 0 && o.Requests > 0 && o.Rate > 0 {
		o.PayWithin = (newPace(o.Requests,
			o.Rate).takes(o.Requests) + paySlack + time.Duration(o.Stock)*payPerUnit).Round(time.Second)
		if o.Citus {
			o.PayWithin += nodeSlack
		}
	}
	return o
}

// newSeed is short enough to be typed again.
func newSeed() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return uint64(binary.LittleEndian.Uint32(b[:])) + 1
}

// Validate returns a KindInvalid error that names the first option out of bounds.
func (o Options) Validate() error {
	switch {
	case o.Requests < minRequests || o.Requests > maxRequests:
		return pipeline.Errorf(pipeline.KindInvalid, "--requests %d: use %d to %d", o.Requests, minRequests,
			maxRequests)
	case o.Stock < minStock:
		return pipeline.Errorf(pipeline.KindInvalid, "--stock %d: use %d or more", o.Stock, minStock)
	case o.Buyers < o.Stock || o.Buyers > o.Requests/requestsPerBuyer:
		return pipeline.Errorf(pipeline.KindInvalid,
			"--buyers %d: use at least the stock, %d, so that it sells out, and at most half of the requests, %d",
			o.Buyers, o.Stock, o.Requests/requestsPerBuyer)
	case o.Rate < minRate || o.Rate > maxRate:
		return pipeline.Errorf(pipeline.KindInvalid, "--rate %d: use %d to %d requests per second", o.Rate, minRate,
			maxRate)
	case o.PayWithin < time.Second || o.PayWithin > maxPayWithin:
		return pipeline.Errorf(pipeline.KindInvalid, "--pay-within %s: use 1s to %s", o.PayWithin, maxPayWithin)
	}
	return nil
}
