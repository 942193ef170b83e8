package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
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

	refusal atomic.Pointer[refusal] // what is remembered, so that most refusals need no Redis; nil: nothing
	asked   atomic.Bool             // somebody asked for it since the last look
	accepts atomic.Int64            // by this gate, of any attempt

	mu           sync.Mutex // protects the rest
	queue        []*pendingRequest
	load         load
	draining     bool
	refusedSince time.Time
	refused      int // refusals since then
}

// gate returns the gate of a sale's partition, and makes it for the first request.
func (c *Controller) gate(id pipeline.SalePartition) *gate {
	if g, ok := c.gates.Load(id); ok {
		return g.(*gate)
	}
	g, _ := c.gates.LoadOrStore(id, newGate(c, id))
	return g.(*gate)
}

func newGate(c *Controller, at pipeline.SalePartition) *gate {
	return &gate{controller: c, at: at, keys: c.keys.ForSale(at.Partition, at.SaleID), marker: c.keys.Marker(at.Partition)}
}

// pendingRequest is one request without an outcome yet.
type pendingRequest struct {
	ctx     context.Context // of the buyer's request
	until   time.Time       // its time limit
	request lua.AdmitRequest
	taken   atomic.Bool // Redis has accepted it, which is not confirmed: no answer may say otherwise any more
	answer  chan answer // capacity 1: the gate never waits for a request that has ended
}

type answer struct {
	decision Decision
	err      error
}

var errNoAnswer = pipeline.Errorf(pipeline.KindUnavailable,
	"no answer from Redis in time; repeat the request with the same Idempotency-Key")

// timers bound the waiting of requests. A context with a limit would cost each request four allocations.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// ended reports whether nobody waits for the answer any more.
func (p *pendingRequest) ended() bool { return p.ctx.Err() != nil || !time.Now().Before(p.until) }

// submit queues a request and waits for its answer.
func (g *gate) submit(ctx context.Context, request lua.AdmitRequest) (Decision, error) {
	limit := g.controller.opts.RequestTimeout
	pending := &pendingRequest{ctx: ctx, until: time.Now().Add(limit), request: request, answer: make(chan answer, 1)}
	if err := g.enqueue(pending); err != nil {
		return Decision{}, err
	}
	timer := timers.Get().(*time.Timer)
	defer timers.Put(timer)
	defer timer.Stop() // nothing is left in its channel then
	timer.Reset(limit)
	select {
	case got := <-pending.answer:
		return got.decision, got.err
	case <-ctx.Done():
	case <-timer.C:
	}
	select { // both may have come at once, and an answer counts for more
	case got := <-pending.answer:
		return got.decision, got.err
	default:
		return Decision{}, pending.unknown()
	}
}

// unknown is the answer to a request whose outcome is not known.
func (p *pendingRequest) unknown() error {
	if p.taken.Load() {
		return errTaken
	}
	return errNoAnswer
}

func (g *gate) enqueue(pending *pendingRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) >= g.controller.opts.QueueLimit || g.load.sheds(len(g.queue), g.controller.opts.BatchLimit) {
		return pipeline.Errorf(pipeline.KindOverloaded, "%d requests are waiting for this sale", len(g.queue))
	}
	if g.controller.closing.Load() || !g.draining && !g.controller.start(g.drain) {
		return pipeline.Errorf(pipeline.KindUnavailable, "shutting down; repeat the request")
	}
	g.draining = true
	g.queue = append(g.queue, pending)
	return nil
}

// start runs a gate's drain unless the Controller is closing.
func (c *Controller) start(drain func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		return false
	}
	c.drains.Go(drain)
	return true
}

// drain runs batches until the queue is empty.
func (g *gate) drain() {
	for {
		batch := g.next()
		if batch == nil {
			return
		}
		began := time.Now()
		g.run(batch, false)
		g.ran(time.Since(began))
	}
}

func (g *gate) ran(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.load.ran(took)
}

func (g *gate) next() []*pendingRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), g.controller.opts.BatchLimit)
	if n == 0 {
		g.draining = false
		g.queue = nil
		g.load.left(false)
		return nil
	}
	batch := g.queue[:n:n]
	g.queue = g.queue[n:]
	g.load.left(len(g.queue) >= g.controller.opts.BatchLimit)
	return batch
}

// run gets the outcome of a batch. It repeats a call whose reply was lost, with the same order ids, as long as a
// request of the batch waits; requests that have ended are not admitted any more. So it does with accepts that must be
// confirmed, but apart: meanwhile the gate answers those who come next.
func (g *gate) run(batch []*pendingRequest, apart bool) {
	defer func() {
		if p := recover(); p != nil {
			g.controller.log.Error("admission panicked",
				"sale", g.at.SaleID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			fail(batch, pipeline.Errorf(pipeline.KindUnavailable, "internal error"))
		}
	}()
	backoff := retry.NewRequestBackoff()
	for again := apart; ; again = true {
		batch = slices.DeleteFunc(batch, (*pendingRequest).ended)
		if len(batch) == 0 {
			return
		}
		made, err := g.attempt(batch, again)
		if err == nil {
			if batch = g.deliver(batch, made); len(batch) == 0 {
				return
			}
			err = errUnconfirmed
		}
		switch {
		case errors.Is(err, errUnconfirmed) && !apart:
			g.controller.drains.Go(func() { g.run(batch, true) })
			return
		case !errors.Is(err, errUnconfirmed) && g.failed(batch, err, apart):
			return
		}
		backoff.Wait(context.Background()) // a request that ends meanwhile is noticed after it
	}
}

// failed reports whether a failed call was the last one for this batch.
func (g *gate) failed(batch []*pendingRequest, err error, apart bool) bool {
	if errors.Is(err, ErrDurabilityUnavailable) { // no call was made; logged when it began
		fail(batch, err)
		return true
	}
	g.controller.metrics.retries.Inc()
	if redis.HasErrorPrefix(err, "BADSLOT") && len(batch) > 1 {
		for i := range batch { // one buyer's slot can't be read: the others' requests must not fail for it
			g.run(batch[i:i+1], apart)
		}
		return true
	}
	if !retry.IsTransient(err) {
		g.controller.log.Warn("admission failed", "sale", g.at.SaleID, "error", err)
		fail(batch, retry.Unavailable(err))
		return true
	}
	return false
}

// fail gives the requests of a batch that have no answer yet an error.
func fail(batch []*pendingRequest, err error) {
	for _, pending := range batch {
		err := err
		if pending.taken.Load() {
			err = pending.unknown()
		}
		select {
		case pending.answer <- answer{err: err}:
		default: // already answered
		}
	}
}
