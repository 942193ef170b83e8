package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// gate serializes the admissions of one sale on one partition. It has a goroutine only while requests wait.
type gate struct {
	admission *Admission
	id        gateID
	keys      lua.AdmitKeys

	mu       sync.Mutex // protects the two below
	waiting  []*ticket
	draining bool
}

// ticket is one request that waits for its outcome.
type ticket struct {
	ctx     context.Context // of the buyer's request; ends with the time limit too
	request lua.AdmitRequest
	answer  chan answer // capacity 1: the gate never waits for a buyer who has left
}

type answer struct {
	decision Decision
	err      error
}

var errNoAnswer = Errorf(KindUnavailable, "no answer from Redis in time; repeat the request with the same Idempotency-Key")

func (g *gate) admit(ctx context.Context, req OrderRequest) (Decision, error) {
	request, err := newAdmitRequest(req)
	if err != nil {
		return Decision{}, err
	}
	t := &ticket{ctx: ctx, request: request, answer: make(chan answer, 1)}
	if err := g.enqueue(t); err != nil {
		return Decision{}, err
	}
	select {
	case got := <-t.answer:
		return got.decision, got.err
	case <-ctx.Done():
	}
	select { // both may have come at once, and an answer is worth more
	case got := <-t.answer:
		return got.decision, got.err
	default:
		return Decision{}, errNoAnswer
	}
}

func (g *gate) enqueue(t *ticket) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) >= g.admission.opts.QueueLimit {
		return Errorf(KindOverloaded, "%d requests are waiting for this sale", len(g.waiting))
	}
	if g.admission.closing.Load() || !g.draining && !g.admission.start(g.drain) {
		return Errorf(KindUnavailable, "shutting down; repeat the request")
	}
	g.draining = true
	g.waiting = append(g.waiting, t)
	return nil
}

// drain runs batches until nobody waits.
func (g *gate) drain() {
	for {
		batch := g.next()
		if batch == nil {
			return
		}
		g.run(batch)
	}
}

func (g *gate) next() []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), g.admission.opts.BatchLimit)
	if n == 0 {
		g.draining = false
		g.waiting = nil
		return nil
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return batch
}

// run gets the outcome of a batch. It repeats a call whose reply was lost, with the same order ids, for as long as
// a buyer of the batch waits; buyers who left are not admitted any more.
func (g *gate) run(batch []*ticket) {
	defer func() {
		if p := recover(); p != nil {
			g.admission.log.Error("admission panicked", "sale", g.id.sale, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			fail(batch, Errorf(KindUnavailable, "internal error"))
		}
	}()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 10*time.Millisecond, 250*time.Millisecond
	for again := false; ; again = true {
		batch = slices.DeleteFunc(batch, func(t *ticket) bool { return t.ctx.Err() != nil })
		if len(batch) == 0 {
			return
		}
		reply, level, err := g.call(batch, again)
		if err == nil {
			g.deliver(batch, reply, level)
			return
		}
		g.admission.metrics.admitRetried()
		if redis.HasErrorPrefix(err, "BADSLOT") && len(batch) > 1 {
			for i := range batch { // one buyer's slot can't be read: the others must not suffer for it
				g.run(batch[i : i+1])
			}
			return
		}
		if !passes(err) {
			g.admission.log.Warn("admission failed", "sale", g.id.sale, "error", err)
			fail(batch, refusal(err))
			return
		}
		time.Sleep(wait.NextBackOff())
	}
}

func (g *gate) call(batch []*ticket, again bool) (lua.AdmitReply, Durability, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.admission.opts.AttemptTimeout)
	defer cancel()
	if err := g.number(ctx, batch); err != nil {
		return lua.AdmitReply{}, "", err
	}
	requests := make([]lua.AdmitRequest, len(batch))
	for i, t := range batch {
		requests[i] = t.request
	}
	g.admission.metrics.admitBatch(len(batch))
	marker := g.admission.keys.Marker(g.id.partition)
	return g.admission.confirm.admit(ctx, marker, again, func(rdb redis.Scripter) (lua.AdmitReply, error) {
		return lua.Admit(ctx, rdb, g.keys, g.id.sale, g.admission.opts.StreamMaxLag, requests)
	})
}

// number gives order numbers to those that have none yet; a second attempt keeps the first one's.
func (g *gate) number(ctx context.Context, batch []*ticket) error {
	if !slices.ContainsFunc(batch, func(t *ticket) bool { return t.request.Number == 0 }) {
		return nil
	}
	numbers := make([]int64, len(batch))
	if err := g.admission.numbers.Take(ctx, numbers); err != nil {
		return err
	}
	for i, t := range batch {
		if t.request.Number == 0 {
			t.request.Number = numbers[i]
		}
	}
	return nil
}

func (g *gate) deliver(batch []*ticket, reply lua.AdmitReply, level Durability) {
	g.witness(batch, reply)
	for i, t := range batch {
		outcome := reply.Outcomes[i]
		switch outcome.Code { //nolint:exhaustive // the others are decisions
		case lua.AdmitNotLoaded:
			t.answer <- answer{err: Errorf(KindNotLoaded, "sale %s is not loaded yet", g.id.sale)}
			continue
		case lua.AdmitUntrusted:
			t.answer <- answer{err: Errorf(KindNotLoaded, "sale %s is being verified after a restart", g.id.sale)}
			continue
		}
		t.answer <- answer{decision: Decision{
			Code: outcome.Code,
			Receipt: Receipt{
				SaleID: g.id.sale, OrderID: outcome.Slot.OrderID, Number: outcome.Slot.Number,
				Quantity: outcome.Slot.Quantity, Durability: level,
				AcceptedAt: time.UnixMilli(outcome.Slot.AcceptedMS).UTC(),
			},
			OpensAt: time.UnixMilli(reply.OpensMS).UTC(), ClosesAt: time.UnixMilli(reply.ClosesMS).UTC(),
			MaxQuantity: reply.MaxQuantity, Remaining: reply.Stock,
		}}
	}
}

func fail(batch []*ticket, err error) {
	for _, t := range batch {
		select {
		case t.answer <- answer{err: err}:
		default: // it has its answer already
		}
	}
}

// passes reports whether an error of Redis goes away by itself: the network, a time-out, a server that starts or fails
// over.
func passes(err error) bool {
	if KindOf(err) != "" || errors.Is(err, redis.ErrClosed) {
		return false
	}
	var answered redis.Error
	if !errors.As(err, &answered) {
		return true
	}
	return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

var passing = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOSCRIPT", "NOREPLICAS"}

// refusal turns an error of Redis that stays into what the buyer is told.
func refusal(err error) error {
	if KindOf(err) != "" {
		return err
	}
	if redis.IsOOMError(err) {
		return Wrap(KindUnavailable, err, "Redis is out of memory")
	}
	if redis.HasErrorPrefix(err, "MISCONF") {
		return Wrap(KindUnavailable, err, "Redis can't write to its disk")
	}
	return Wrap(KindUnavailable, err, "Redis refused the request")
}
