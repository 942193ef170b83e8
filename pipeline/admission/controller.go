package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/ordernumber"
	"sluice/pipeline/retry"
)

// Receipt is what a buyer gets after an accept.
type Receipt struct {
	SaleID     string
	OrderID    string
	Number     int64
	Quantity   int
	Durability pipeline.Durability
	AcceptedAt time.Time // by Redis' clock
}

// Result is the outcome of an order request. Every one is expected, none is an error.
type Result string

// The results.
const (
	Accepted       = Result(lua.AdmitAccepted)       // the order is accepted
	Replayed       = Result(lua.AdmitReplayed)       // it was, by a request with the same idempotency key and quantity
	AlreadyOrdered = Result(lua.AdmitAlreadyOrdered) // the buyer has another order
	KeyReused      = Result(lua.AdmitKeyReused)      // it has the same idempotency key and another quantity
	SoldOut        = Result(lua.AdmitSoldOut)        // fewer units left than asked for, or the waitlist comes first
	NotOpen        = Result(lua.AdmitNotOpen)        // before the window
	Closed         = Result(lua.AdmitClosed)         // after the window, or closed by an operator
	Paused         = Result(lua.AdmitPaused)         // paused by an operator
	OverLimit      = Result(lua.AdmitOverLimit)      // more units than the sale allows in one order
	BacklogFull    = Result(lua.AdmitBacklogFull)    // too many events wait for the workers; try again later
)

// Decision is the answer to an order request.
type Decision struct {
	Result      Result
	Receipt     Receipt   // of the accepted or replayed order; of the earlier one for already-ordered and key-reused
	OpensAt     time.Time // the window and limits that Redis decided by
	ClosesAt    time.Time
	MaxQuantity int
	Remaining   int64 // units left on the buyer's partition after the batch
}

// Options bound how much a Controller may queue and how long it may take. Zero values get the defaults.
type Options struct {
	Durability     pipeline.Durability // what to confirm before a buyer gets a receipt, which says what was; default fsync
	StreamMaxLag   int64               // unacknowledged events in a partition's stream; default DefaultStreamMaxLag
	QueueLimit     int                 // requests waiting per sale and partition; default 8192, some 100 ms of work
	BatchLimit     int                 // requests per script call; default and maximum lua.MaxAdmitBatch
	RequestTimeout time.Duration       // from call to answer; default 2 s
	AttemptTimeout time.Duration       // one script call; default 750 ms, so that a lost reply leaves time for another try
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
	return o
}

// Controller answers order requests. Per sale and partition it keeps one gate: requests that arrive while a script call
// is in flight go together with the next one, so that a lone request waits for nothing and a flood is batched.
type Controller struct {
	keys      pipeline.Keys
	numbers   *ordernumber.Generator
	confirmer *confirmer
	opts      Options
	metrics   *Metrics
	log       *slog.Logger

	gates  sync.Map // SalePartition → *gate; as many as there are sales with requests
	recent recentAccepts

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
	return &Controller{
		keys: keys, numbers: ordernumber.NewGenerator(rdb, keys), confirmer: newConfirmer(rdb, opts.Durability, m, log),
		opts: opts, metrics: m, log: log,
	}
}

// Admit asks Redis for the order and waits for the outcome. One call has one outcome: a lost reply is retried with the
// same order id. Errors: KindInvalid, KindOverloaded (queue full), KindNotLoaded (the sale is not in Redis, or Redis is
// not verified yet), KindUnavailable (no answer in time: the order may or may not stand; a request with the same
// Idempotency-Key finds out).
func (c *Controller) Admit(ctx context.Context, sale *pipeline.Sale, req pipeline.OrderRequest) (Decision, error) {
	if err := req.Validate(); err != nil {
		return Decision{}, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	decision, err := c.gate(sale, req.UserID).submit(ctx, req)
	c.metrics.answered(sale.ID, decision.Result, err, time.Since(began))
	return decision, err
}

// Close refuses new requests and waits for the calls in flight, at most until the context ends.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing.Store(true)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.drains.Wait()
		c.confirmer.connections.close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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

func (c *Controller) gate(sale *pipeline.Sale, userID string) *gate {
	id := pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}
	if g, ok := c.gates.Load(id); ok {
		return g.(*gate)
	}
	g, _ := c.gates.LoadOrStore(id, newGate(c, id))
	return g.(*gate)
}

// NewRequest gives a request its order id. The id is made once, before the first attempt: it makes a second attempt
// harmless. Errors: KindUnavailable, where the system gives no randomness.
func NewRequest(req pipeline.OrderRequest) (lua.AdmitRequest, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return lua.AdmitRequest{}, pipeline.Wrap(pipeline.KindUnavailable, err, "no randomness for an order id")
	}
	r := lua.AdmitRequest{
		OrderID: id.String(), UserID: req.UserID, Quantity: req.Quantity, TraceParent: req.TraceParent,
	}
	if req.IdempotencyKey != "" {
		r.KeyHash = shortHash(req.IdempotencyKey)
		r.PayloadHash = shortHash(strconv.Itoa(req.Quantity))
	}
	return r, nil
}

// shortHash keeps 96 bits: enough that two keys of one buyer never collide, and short in a million slots.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}
