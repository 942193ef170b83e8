package admission

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// gate serializes the admissions of one sale on one partition. It has a goroutine only while requests are queued.
type gate struct {
	controller *Controller
	at         pipeline.SalePartition
	keys       lua.SaleKeys
	marker     string

	mu       sync.Mutex // protects the two below
	queue    []*pendingRequest
	draining bool
}

func newGate(c *Controller, at pipeline.SalePartition) *gate {
	return &gate{controller: c, at: at, keys: c.keys.ForSale(at.Partition, at.SaleID), marker: c.keys.Marker(at.Partition)}
}

// pendingRequest is one request without an outcome yet.
type pendingRequest struct {
	ctx     context.Context // of the buyer's request; ends with the time limit too
	request lua.AdmitRequest
	answer  chan answer // capacity 1: the gate never waits for a request that has ended
}

type answer struct {
	decision Decision
	err      error
}

var errNoAnswer = pipeline.Errorf(pipeline.KindUnavailable,
	"no answer from Redis in time; repeat the request with the same Idempotency-Key")

// submit queues a request and waits for its answer.
func (g *gate) submit(ctx context.Context, req pipeline.OrderRequest) (Decision, error) {
	request, err := NewRequest(req)
	if err != nil {
		return Decision{}, err
	}
	pending := &pendingRequest{ctx: ctx, request: request, answer: make(chan answer, 1)}
	if err := g.enqueue(pending); err != nil {
		return Decision{}, err
	}
	select {
	case got := <-pending.answer:
		return got.decision, got.err
	case <-ctx.Done():
	}
	select { // both may have come at once, and an answer counts for more
	case got := <-pending.answer:
		return got.decision, got.err
	default:
		return Decision{}, errNoAnswer
	}
}

func (g *gate) enqueue(pending *pendingRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) >= g.controller.opts.QueueLimit {
		return pipeline.Errorf(pipeline.KindOverloaded, "%d requests are waiting for this sale", len(g.queue))
	}
	if g.controller.closing.Load() || !g.draining && !g.controller.start(g.drain) {
		return pipeline.Errorf(pipeline.KindUnavailable, "shutting down; repeat the request")
	}
	g.draining = true
	g.queue = append(g.queue, pending)
	return nil
}

// drain runs batches until the queue is empty.
func (g *gate) drain() {
	for {
		batch := g.next()
		if batch == nil {
			return
		}
		g.run(batch)
	}
}

func (g *gate) next() []*pendingRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), g.controller.opts.BatchLimit)
	if n == 0 {
		g.draining = false
		g.queue = nil
		return nil
	}
	batch := g.queue[:n:n]
	g.queue = g.queue[n:]
	return batch
}

// run gets the outcome of a batch. It repeats a call whose reply was lost, with the same order ids, as long as a
// request of the batch waits; requests that have ended are not admitted any more.
func (g *gate) run(batch []*pendingRequest) {
	defer func() {
		if p := recover(); p != nil {
			g.controller.log.Error("admission panicked",
				"sale", g.at.SaleID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			fail(batch, pipeline.Errorf(pipeline.KindUnavailable, "internal error"))
		}
	}()
	backoff := retry.NewRequestBackoff()
	for again := false; ; again = true {
		batch = slices.DeleteFunc(batch, func(pending *pendingRequest) bool { return pending.ctx.Err() != nil })
		if len(batch) == 0 {
			return
		}
		reply, level, err := g.attempt(batch, again)
		if err == nil {
			g.deliver(batch, reply, level)
			return
		}
		g.controller.metrics.retries.Inc()
		if redis.HasErrorPrefix(err, "BADSLOT") && len(batch) > 1 {
			for i := range batch { // one buyer's slot can't be read: the others' requests must not fail for it
				g.run(batch[i : i+1])
			}
			return
		}
		if !retry.IsTransient(err) {
			g.controller.log.Warn("admission failed", "sale", g.at.SaleID, "error", err)
			fail(batch, retry.Unavailable(err))
			return
		}
		backoff.Wait(context.Background()) // a request that ends meanwhile is noticed after it
	}
}

// attempt runs the script once and finds out how durable its accepts are.
func (g *gate) attempt(batch []*pendingRequest, again bool) (lua.AdmitReply, pipeline.Durability, error) {
	c := g.controller
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.AttemptTimeout)
	defer cancel()
	if err := g.number(ctx, batch); err != nil {
		return lua.AdmitReply{}, "", err
	}
	requests := make([]lua.AdmitRequest, len(batch))
	for i, pending := range batch {
		requests[i] = pending.request
	}
	c.metrics.batchSize.Observe(float64(len(batch)))
	conn, err := c.confirmer.connect(ctx, g.marker)
	if err != nil {
		return lua.AdmitReply{}, "", err
	}
	reply, err := lua.Admit(ctx, conn, g.keys, g.at.SaleID, c.opts.StreamMaxLag, requests)
	if err != nil {
		c.confirmer.failed(conn, err)
		return lua.AdmitReply{}, "", err
	}
	return reply, c.confirmer.confirm(conn, g.marker, again, reply), nil
}

// number gives order numbers to the requests that have none yet; a second attempt keeps those of the first.
func (g *gate) number(ctx context.Context, batch []*pendingRequest) error {
	if !slices.ContainsFunc(batch, func(pending *pendingRequest) bool { return pending.request.Number == 0 }) {
		return nil
	}
	numbers := make([]int64, len(batch))
	if err := g.controller.numbers.Take(ctx, numbers); err != nil {
		return err
	}
	for i, pending := range batch {
		if pending.request.Number == 0 {
			pending.request.Number = numbers[i]
		}
	}
	return nil
}

func (g *gate) deliver(batch []*pendingRequest, reply lua.AdmitReply, level pipeline.Durability) {
	g.remember(batch, reply)
	for i, pending := range batch {
		outcome := reply.Outcomes[i]
		switch outcome.Code { //nolint:exhaustive // the others are decisions
		case lua.AdmitNotLoaded:
			pending.answer <- answer{err: pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not loaded yet", g.at.SaleID)}
			continue
		case lua.AdmitUntrusted:
			pending.answer <- answer{err: pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is being verified after a restart",
				g.at.SaleID)}
			continue
		}
		pending.answer <- answer{decision: Decision{
			Result: Result(outcome.Code),
			Receipt: Receipt{
				SaleID: g.at.SaleID, OrderID: outcome.Slot.OrderID, Number: outcome.Slot.Number,
				Quantity: outcome.Slot.Quantity, Durability: level,
				AcceptedAt: time.UnixMilli(outcome.Slot.AcceptedMS).UTC(),
			},
			OpensAt: time.UnixMilli(reply.OpensMS).UTC(), ClosesAt: time.UnixMilli(reply.ClosesMS).UTC(),
			MaxQuantity: reply.MaxQuantity, Remaining: reply.Stock,
		}}
	}
}

func fail(batch []*pendingRequest, err error) {
	for _, pending := range batch {
		select {
		case pending.answer <- answer{err: err}:
		default: // already answered
		}
	}
}
