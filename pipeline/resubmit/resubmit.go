package resubmit

import (
	"context"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/installation"
	"sluice/pipeline/retry"
)

// Store is what a Resubmitter needs of Postgres.
type Store interface {
	KnownOrders(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error)
	// LeftWaitlist returns those of some ids of orders that were to be made of waitlist entries whose buyers have left.
	LeftWaitlist(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error)
	// WholeUntil is the highest accept up to which Postgres was given back all that Redis had, after it had gone back.
	WholeUntil(ctx context.Context, at pipeline.SalePartition) (int64, error)
	Sale(ctx context.Context, id string) (*pipeline.Sale, error)
	deadletter.BuryStore
}

// Resubmitter submits accepts to Redis again that it may have lost: those that a worker has fetched, and those that an
// api process gave receipts for. Both may do it, concurrently or twice: an accept is identified by its order id.
type Resubmitter struct {
	rdb     redis.UniversalClient
	keys    pipeline.Keys
	store   Store
	burier  *deadletter.Burier
	fence   *installation.Fence
	metrics *Metrics
	log     *slog.Logger
}

// Config is what a Resubmitter works with.
type Config struct {
	Redis   redis.UniversalClient
	Keys    pipeline.Keys
	Store   Store
	Burier  *deadletter.Burier
	Fence   *installation.Fence // a server that was verified before what it knows takes nothing; nil: any does
	Metrics *Metrics            // nil: nothing is exported
	Log     *slog.Logger
}

// New returns a Resubmitter over both stores.
func New(c Config) *Resubmitter {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Resubmitter{
		rdb: c.Redis, keys: c.Keys, store: c.Store, burier: c.Burier, fence: c.Fence, metrics: c.Metrics, log: c.Log,
	}
}

// Standing says where an accept stands after it was submitted again.
type Standing string

// The standings.
const (
	Known    Standing = "known"    // its order has a row in Postgres
	Left     Standing = "left"     // it was a hand-over to a buyer who has left the waitlist since
	Held     Standing = "held"     // it still holds its slot in Redis
	Unloaded Standing = "unloaded" // the sale is over, and no longer in Redis
	Renewed  Standing = "renewed"  // it was lost, and took its units again; a new event carries it
	Lost     Standing = "lost"     // it was lost, and its units are gone: it is rejected, with a dead letter
)

// Resubmit submits accepts of one sale on one partition again, and returns where each stands. After an error, none,
// some or all of them may have been submitted; submitting them once more is harmless. Errors: KindNotLoaded, where
// Redis is not verified yet; KindUnavailable.
func (r *Resubmitter) Resubmit(
	ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept,
) ([]Standing, error) {
	ids := make([]string, len(accepts))
	for i := range accepts {
		ids[i] = accepts[i].OrderID
	}
	known, err := r.store.KnownOrders(ctx, at.SaleID, ids)
	if err != nil {
		return nil, err
	}
	left, err := r.store.LeftWaitlist(ctx, at.SaleID, ids)
	if err != nil {
		return nil, err
	}
	standings := make([]Standing, len(accepts))
	var unknown []int
	for i, id := range ids {
		switch {
		case known[id]:
			standings[i] = Known
		case left[id]:
			standings[i] = Left
		default:
			unknown = append(unknown, i)
		}
	}
	if unknown, err = r.buryForgotten(ctx, at, accepts, unknown, standings); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(unknown, lua.MaxAdmitBatch) {
		if err := r.submit(ctx, at, accepts, chunk, standings); err != nil {
			return nil, err
		}
	}
	for _, s := range standings {
		r.metrics.accepts.WithLabelValues(string(s)).Inc()
	}
	return standings, nil
}

// buryForgotten makes dead letters of accepts whose orders Postgres has forgotten, where it was given back all that
// Redis had up to then: their orders had ended, and must not take units again. It returns the indexes of the others.
func (r *Resubmitter) buryForgotten(
	ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept, unknown []int, standings []Standing,
) ([]int, error) {
	if len(unknown) == 0 {
		return nil, nil
	}
	whole, err := r.store.WholeUntil(ctx, at)
	if err != nil {
		return nil, err
	}
	var rest []int
	for _, i := range unknown {
		accept := &accepts[i]
		if accept.Sequence > whole {
			rest = append(rest, i)
			continue
		}
		if err := r.burier.BuryLost(ctx, &accept.Event, "ledger:"+accept.OrderID,
			"Postgres had forgotten this order: it had ended, and nobody knows how"); err != nil {
			return nil, err
		}
		standings[i] = Lost
	}
	return rest, nil
}

// submit submits the accepts whose indexes are in the chunk, makes dead letters of those that can't stand any more, and
// sets the standings of all of them.
func (r *Resubmitter) submit(
	ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept, chunk []int, standings []Standing,
) error {
	requests := make([]lua.AdmitRequest, len(chunk))
	for i, index := range chunk {
		a := &accepts[index]
		requests[i] = lua.AdmitRequest{
			OrderID: a.OrderID, Number: a.Number, UserID: a.UserID, Quantity: a.Quantity,
			KeyHash: a.KeyHash, PayloadHash: a.PayloadHash, TraceParent: a.TraceParent,
		}
	}
	call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	keys := r.keys.ForSale(at.Partition, at.SaleID)
	keys.Fence = int64(r.fence.Generation(at.Partition))
	reply, err := lua.Resubmit(call, r.rdb, keys, at.SaleID, requests)
	if redis.HasErrorPrefix(err, "BADSLOT") {
		return r.submitEach(ctx, at, accepts, chunk, standings)
	}
	if err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take lost orders back")
	}
	for i, index := range chunk {
		accept, outcome := &accepts[index], reply.Outcomes[i]
		switch {
		case outcome.Code == lua.AdmitUntrusted:
			return pipeline.Errorf(pipeline.KindNotLoaded, "Redis is not verified yet, or was replaced")
		case outcome.Code == lua.AdmitNotLoaded:
			standings[index] = Unloaded
		case outcome.Code == lua.AdmitAccepted && isSlotOf(outcome.Slot, accept):
			standings[index] = Held
		case outcome.Code == lua.AdmitAccepted:
			standings[index] = Renewed
		default:
			if err := r.burier.BuryLost(ctx, &accept.Event, "lost:"+accept.OrderID,
				"Redis lost the order after it was accepted, and could not take it again: "+string(outcome.Code)); err != nil {
				return err
			}
			standings[index] = Lost
		}
	}
	return nil
}

// submitEach submits accepts one by one: one buyer's slot can't be read, which must not keep the others' orders back.
// That buyer has a slot, and the audit reports it.
func (r *Resubmitter) submitEach(
	ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept, chunk []int, standings []Standing,
) error {
	if len(chunk) == 1 {
		a := &accepts[chunk[0]]
		r.log.Error("a buyer's slot can't be read, so it is not known whether Redis lost the order",
			"sale", at.SaleID, "buyer", a.UserID, "order", a.OrderID)
		standings[chunk[0]] = Held
		return nil
	}
	for i := range chunk {
		if err := r.submit(ctx, at, accepts, chunk[i:i+1], standings); err != nil {
			return err
		}
	}
	return nil
}

// isSlotOf reports whether a slot is that of the earlier accept. Otherwise it is one that was made just now, which may
// have got the same sequence.
func isSlotOf(slot lua.Slot, accept *pipeline.Accept) bool {
	return slot.Sequence == accept.Sequence && slot.AcceptedMS == accept.AcceptedAt.UnixMilli()
}
