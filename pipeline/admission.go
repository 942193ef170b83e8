package pipeline

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
)

// MaxIdempotencyKeyBytes bounds the Idempotency-Key header; only a hash of it is kept.
const MaxIdempotencyKeyBytes = 255

// OrderRequest is what a buyer asks for.
type OrderRequest struct {
	UserID         string
	Quantity       int    // units, 1..MaxQuantityLimit; the sale's own limit is checked in Redis
	IdempotencyKey string // empty when the buyer sent none
	TraceParent    string // W3C trace context, only when sampled
}

// Validate returns a KindInvalid error for a request that no sale could accept.
func (r *OrderRequest) Validate() error {
	if err := ValidateUserID(r.UserID); err != nil {
		return err
	}
	if r.Quantity < 1 || r.Quantity > MaxQuantityLimit {
		return Errorf(KindInvalid, "quantity %d: use 1 to %d", r.Quantity, MaxQuantityLimit)
	}
	if len(r.IdempotencyKey) > MaxIdempotencyKeyBytes {
		return Errorf(KindInvalid, "Idempotency-Key has %d bytes; at most %d are allowed",
			len(r.IdempotencyKey), MaxIdempotencyKeyBytes)
	}
	return nil
}

// Receipt is what a buyer holds after an accept.
type Receipt struct {
	SaleID     string
	OrderID    string
	Number     int64
	Quantity   int
	Durability Durability
	AcceptedAt time.Time // by Redis' clock
}

// Decision is the answer to an order request. Every code is an expected outcome, none is an error.
type Decision struct {
	Code        lua.AdmitCode
	Receipt     Receipt   // of the accepted or replayed order; of the earlier one for already-ordered and key-reused
	OpensAt     time.Time // the window and limits that Redis decided by
	ClosesAt    time.Time
	MaxQuantity int
	Remaining   int64 // units left on the buyer's partition after the batch
}

// DefaultStreamMaxLag is how many accepted orders may wait for the workers on one partition. A million of them take Redis
// some 300 MB, slots included (measured: 0.3 KB each), and one lane of a worker about a minute. Beyond that, the workers or
// Postgres need somebody's help, and Redis' memory is worth more than further accepts.
const DefaultStreamMaxLag = 1_000_000

// AdmissionOptions bound what an Admission may hold and how long it may take. Zero values get the defaults.
type AdmissionOptions struct {
	Durability     Durability    // what shall be confirmed before a buyer is told; default fsync. Receipts say what was
	StreamMaxLag   int64         // events in a partition's stream that are not acknowledged; default DefaultStreamMaxLag
	QueueLimit     int           // requests waiting per sale and partition; default 8192, some 100 ms of work
	BatchLimit     int           // requests per script call; default and maximum lua.MaxAdmitBatch
	RequestTimeout time.Duration // from call to answer; default 2 s
	AttemptTimeout time.Duration // one script call; default 750 ms, so that a lost reply leaves time for another try
}

func (o AdmissionOptions) withDefaults() AdmissionOptions {
	if o.Durability == "" {
		o.Durability = DurabilityFsync
	}
	if o.StreamMaxLag <= 0 {
		o.StreamMaxLag = DefaultStreamMaxLag
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
		o.AttemptTimeout = 750 * time.Millisecond
	}
	return o
}

// Admission answers order requests. Per sale and partition it keeps one gate: requests that arrive while a script call
// is in flight go together with the next one, so that a lone request waits for nothing and a flood is batched.
type Admission struct {
	keys    Keys
	numbers *Numbers
	confirm *confirmer
	opts    AdmissionOptions
	metrics *Metrics
	log     *slog.Logger

	gates   sync.Map // gateID → *gate; as many as there are sales with requests
	witness witness

	mu      sync.Mutex // makes start and Close take turns, so that no drain starts behind the back of Close
	closing atomic.Bool
	drains  sync.WaitGroup
}

// NewAdmission returns an Admission that is ready for requests. Close it to wait for those in flight.
func NewAdmission(rdb redis.UniversalClient, keys Keys, opts AdmissionOptions, m *Metrics, log *slog.Logger) *Admission {
	opts = opts.withDefaults()
	return &Admission{
		keys: keys, numbers: NewNumbers(rdb, keys), confirm: newConfirmer(rdb, opts.Durability, m, log),
		opts: opts, metrics: m, log: log,
	}
}

// Admit asks Redis for the order and waits for the outcome. One call has one outcome: a lost reply is retried with the
// same order id. Errors: KindInvalid, KindOverloaded (queue full), KindNotLoaded (Redis does not hold the sale),
// KindUnavailable (no answer in time: the order may or may not stand; the same Idempotency-Key tells).
func (a *Admission) Admit(ctx context.Context, sale *Sale, req OrderRequest) (Decision, error) {
	if err := req.Validate(); err != nil {
		return Decision{}, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.opts.RequestTimeout)
	defer cancel()
	decision, err := a.gate(sale, req.UserID).admit(ctx, req)
	a.metrics.admitted(sale.ID, decision.Code, err, time.Since(began))
	return decision, err
}

// Close refuses new requests and waits for the calls in flight, at most until the context ends.
func (a *Admission) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closing.Store(true)
	a.mu.Unlock()
	done := make(chan struct{})
	go func() {
		a.drains.Wait()
		a.confirm.links.close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start runs a gate's drain unless the Admission is closing.
func (a *Admission) start(drain func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing.Load() {
		return false
	}
	a.drains.Go(drain)
	return true
}

type gateID struct {
	sale      string
	partition Partition
}

func (a *Admission) gate(sale *Sale, userID string) *gate {
	id := gateID{sale.ID, sale.PartitionOf(userID)}
	if g, ok := a.gates.Load(id); ok {
		return g.(*gate)
	}
	g, _ := a.gates.LoadOrStore(id, &gate{admission: a, id: id, keys: a.keys.admit(id.partition, id.sale)})
	return g.(*gate)
}

// newAdmitRequest gives a request its order id. The id is made once, before the first attempt: it is what makes
// a second attempt harmless.
func newAdmitRequest(req OrderRequest) (lua.AdmitRequest, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return lua.AdmitRequest{}, Wrap(KindUnavailable, err, "no randomness for an order id")
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

// shortHash keeps 96 bits: enough that two keys of one buyer never meet, and short in a million slots.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}
