package admission

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/journal"
	"sluice/pipeline/ordernumber"
	"sluice/pipeline/retry"
)

// Options bound how much a Controller may queue and how long it may take. Zero values get the defaults.
type Options struct {
	Durability pipeline.Durability // what to confirm before a buyer gets a receipt, which says what was; default fsync
	// DurabilityStrict refuses orders while Durability can't be confirmed; without it a receipt states a lower level.
	DurabilityStrict bool

	StreamMaxLag   int64               // unacknowledged events in a partition's stream; default DefaultStreamMaxLag
	QueueLimit     int                 // requests waiting per sale and partition; default 8192, some 100 ms of work
	BatchLimit     int                 // requests per script call; default and maximum lua.MaxAdmitBatch
	RequestTimeout time.Duration       // from call to answer; default 2 s
	AttemptTimeout time.Duration       // one script call; default 750 ms, so that a lost reply leaves time for another try
	Journal        *journal.Journal    // keeps every accept before its receipt is given; default: one in memory
	Elsewhere      Elsewhere           // for sales on several partitions; nil: each has a share of its own
	Fence          *installation.Fence // a server that was replaced, as far as it knows, accepts nothing; nil: none is
}

func (o Options) withDefaults() Options {
	if o.Durability == "" {
		o.Durability = pipeline.DurabilityFsync
	}
	if o.StreamMaxLag <= 0 {
		o.StreamMaxLag = pipeline.DefaultStreamMaxLag
	}
	if o.QueueLimit <= 0 {
		o.QueueLimit = 8192
	}
	if o.BatchLimit <= 0 || o.BatchLimit > lua.MaxAdmitBatch {
		o.BatchLimit = lua.MaxAdmitBatch
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 2 * time.Second
	}
	if o.AttemptTimeout <= 0 {
		o.AttemptTimeout = retry.AttemptTimeout
	}
	if o.Journal == nil {
		o.Journal = journal.Open(journal.Options{})
	}
	return o
}

// Controller answers order requests. Per sale and partition it keeps one gate: requests that arrive while a script call
// is in flight go together with the next one, so that a lone request waits for nothing and a flood is batched.
type Controller struct {
	keys        pipeline.Keys
	numbers     *ordernumber.Generator
	connections *connections
	confirmer   *confirmer
	opts        Options
	refusals    *refusals
	metrics     *Metrics
	log         *slog.Logger

	gates sync.Map // SalePartition → *gate; as many as there are sales with requests

	// attempts on a partition read-lock it from the call of the script until its accepts are in the journal
	attempts [pipeline.MaxPartitions]sync.RWMutex

	mu      sync.Mutex // serializes start and Close, so that no drain starts after Close has begun
	closing atomic.Bool
	drains  sync.WaitGroup
}

// New returns a Controller that is ready for requests. Close it to wait for those in flight.
func New(rdb redis.UniversalClient, keys pipeline.Keys, opts Options, m *Metrics, log *slog.Logger) *Controller {
	opts = opts.withDefaults()
	if m == nil {
		m = NewMetrics(nil)
	}
	c := &Controller{
		keys: keys, numbers: ordernumber.NewGenerator(rdb, keys), connections: newConnections(rdb, opts.Durability),
		confirmer: newConfirmer(opts, m, log), opts: opts, metrics: m, log: log,
	}
	c.refusals = newRefusals(c)
	return c
}

// Admit asks Redis for the order and waits for the outcome. One call has one outcome: a lost reply is retried with the
// same order id. Errors: KindInvalid, KindOverloaded (queue full), KindNotLoaded (the sale is not in Redis, or Redis is
// not verified yet), KindUnavailable (no answer in time: the order may or may not stand; a request with the same
// Idempotency-Key finds out; or, with ErrDurabilityUnavailable, refused before anything was taken).
func (c *Controller) Admit(ctx context.Context, sale *pipeline.Sale, req pipeline.OrderRequest) (Decision, error) {
	if err := req.Validate(); err != nil {
		return Decision{}, err
	}
	began := time.Now()
	g := c.gate(pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(req.UserID)})
	if req.ReplayOnly {
		return c.replay(ctx, g, req)
	}
	decision, err := c.decide(ctx, sale, g, req)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded && began.After(sale.ClosesAt.Add(overMargin)) {
		decision, err = closedFor(sale), nil
	}
	c.metrics.answered(sale.ID, decision.Result, err, time.Since(began))
	return decision, err
}

// unobtainable is more than any sale allows in one order.
const unobtainable = pipeline.MaxQuantityLimit + 1

// replay asks what an idempotency key has ordered, by the way of every order: so the answer is the one that the order
// got, as durable as it must be. The script looks for the key before it judges the quantity, and can't accept this one.
func (c *Controller) replay(ctx context.Context, g *gate, req pipeline.OrderRequest) (Decision, error) {
	request, err := NewRequest(req) // with the hash of what was asked for
	if err != nil {
		return Decision{}, err
	}
	request.Quantity = unobtainable
	began := time.Now()
	decision, err := g.submit(ctx, request)
	if decision.Result == Replayed { // anything else is no answer to an order
		c.metrics.answered(g.at.SaleID, decision.Result, nil, time.Since(began))
	}
	return decision, err
}

// recovered logs the panic of a goroutine of the Controller's own, which must not end the process. It is deferred.
func (c *Controller) recovered(what string) {
	if p := recover(); p != nil { //nolint:revive // it is deferred itself
		c.log.Error("panic", "in", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// Settle returns when the attempts on a partition that were under way have ended, and their accepts are in the journal.
// That takes as long as one attempt at most.
func (c *Controller) Settle(p pipeline.Partition) {
	c.attempts[p].Lock()
	c.attempts[p].Unlock() //nolint:staticcheck // those that were under way have ended now
}

// Journal keeps the accepts of this Controller.
func (c *Controller) Journal() *journal.Journal { return c.opts.Journal }

// Close refuses new requests and waits for the calls in flight, at most until the context ends.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing.Store(true)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.drains.Wait()
		c.connections.close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
