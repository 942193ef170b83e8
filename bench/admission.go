package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sluice/internal/loadgen"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
)

// benchAdmission measures the admission without HTTP against the bare script, called with batches of the size that the
// admission's gate made: with one call in flight, as the gate has it, and with two, which is what a second one would
// bring.
func benchAdmission(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	a, err := newAPI(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	dir, err := os.MkdirTemp("", "sluice-bench")
	if err != nil {
		return nil, err
	}
	kept := journal.Open(journal.Options{Dir: dir, Installation: uuid.NewString()})
	journaled, err := newAdmission(ctx, s, kept)
	if err != nil {
		return nil, errors.Join(err, kept.Close(), os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, journaled.Close(ctx), kept.Close(), os.RemoveAll(dir)) }()
	g := &gateBench{testbed: s, batch: min(s.opts.Clients, lua.MaxAdmitBatch)}
	c := comparison{
		name:  "admission",
		title: fmt.Sprintf("Admission without HTTP, %d callers in one process", s.opts.Clients),
		unit:  "orders",
		candidates: []candidate{
			g.gate("admission", a.admission), g.script("script, 1 call in flight", 1),
			g.script("script, 2 calls in flight", 2), g.gate("admission, accepts journaled on disk", journaled),
		},
		pairs: []pair{
			{"admission / script, 1 in flight", 0, 1},
			{"script, 2 in flight / 1 in flight", 2, 1},
			{"accepts journaled on disk / in memory only", 3, 0},
		},
	}
	result, err := c.run(ctx, s)
	return []Result{result}, err
}

type gateBench struct {
	testbed *testbed
	batch   int // of the gate, in its last round
	first   uint64
	length  time.Duration
}

func (g *gateBench) prepare(ctx context.Context, share float64) error {
	g.first, g.length = g.testbed.newBuyers(), g.testbed.opts.length(share*brief)
	return g.testbed.clear(ctx)
}

func (g *gateBench) check(ctx context.Context, w *Work) error {
	return servedHandler{testbed: g.testbed, admit: true}.check(ctx, w)
}

func (g *gateBench) gate(name string, a *admission.Controller) candidate {
	return candidate{
		name: name, prepare: g.prepare,
		run: func(ctx context.Context) (Work, error) {
			return together(g.testbed.opts.Clients, g.length,
				func(i int) func() error { return g.buyer(ctx, a, uint64(i)) })
		},
		check: func(ctx context.Context, w *Work) error {
			err := g.check(ctx, w)
			if w.Batch > 0 {
				g.batch = int(math.Round(w.Batch))
			}
			return err
		},
	}
}

// buyer calls the admission for one new buyer after the other.
func (g *gateBench) buyer(ctx context.Context, a *admission.Controller, i uint64) func() error {
	next := g.first + i
	return func() error {
		request := pipeline.OrderRequest{UserID: loadgen.BuyerID(g.testbed.opts.Seed, next), Quantity: 1}
		if g.testbed.opts.Keys {
			request.IdempotencyKey = "order-" + request.UserID
		}
		next += uint64(g.testbed.opts.Clients)
		decision, err := a.Admit(ctx, g.testbed.sale, request)
		if err == nil && decision.Result != admission.Accepted {
			err = fmt.Errorf("%s instead of %s", decision.Result, admission.Accepted)
		}
		return err
	}
}

// script calls lua.Admit and nothing else. Requests are made on the clock, as cheaply as can be.
func (g *gateBench) script(name string, inFlight int) candidate {
	return candidate{
		name: name, prepare: g.prepare, check: g.check,
		run: func(ctx context.Context) (Work, error) {
			var orders atomic.Int64
			batch := g.batch
			work, err := together(inFlight, g.length, func(int) func() error {
				requests := make([]lua.AdmitRequest, batch)
				return func() error {
					last := orders.Add(int64(batch))
					g.fill(requests, last-int64(batch))
					return admitAll(ctx, g.testbed, requests)
				}
			})
			work.Count *= int64(batch)
			return work, err
		},
	}
}

func (g *gateBench) fill(requests []lua.AdmitRequest, first int64) {
	const orderID = "01936f2e-8a4b-7c3d-" // the rest of a UUID is the buyer's id
	for i := range requests {
		n := first + int64(i)
		user := loadgen.BuyerID(g.testbed.opts.Seed, g.first+uint64(n))
		r := lua.AdmitRequest{
			OrderID: orderID + user[:4] + "-" + user[4:], Number: 1<<60 + n, UserID: user,
			Quantity: 1,
		}
		if g.testbed.opts.Keys {
			r.KeyHash, r.PayloadHash = "5f0c1bd8e6a94c275f0c1bd8", "a1b2c3d4e5f60718a1b2c3d4"
		}
		requests[i] = r
	}
}

// maxEvents is more than any comparison accepts: what it leaves in the stream is not its limit.
const maxEvents = 1 << 40

// admitAll makes one script call in which everybody must be accepted.
func admitAll(ctx context.Context, s *testbed, requests []lua.AdmitRequest) error {
	p := s.sale.Partitions[0]
	reply, err := lua.Admit(ctx, s.rdb, keys.ForSale(p, saleID), saleID, maxEvents, requests)
	if err != nil {
		return err
	}
	for _, outcome := range reply.Outcomes {
		if outcome.Code != lua.AdmitAccepted {
			return fmt.Errorf("%s instead of %s", outcome.Code, lua.AdmitAccepted)
		}
	}
	return nil
}
