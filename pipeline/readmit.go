package pipeline

import (
	"context"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// ReadmitStore is what showing accepts to Redis again needs of Postgres.
type ReadmitStore interface {
	KnownOrders(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error)
	BuryEvent(ctx context.Context, letter DeadLetter, event *Event) error
}

// readmitter shows accepts to Redis again that it may have lost: those that a worker has in hand, and those that an api has
// told buyers of. Either may do it, at once or twice: an accept is known by its order id.
type readmitter struct {
	rdb     redis.UniversalClient
	keys    Keys
	store   ReadmitStore
	metrics *Metrics
	log     *slog.Logger
}

// told is an accept with the hashes that its buyer's slot held.
type told struct {
	Event
	keyHash, payloadHash string
}

// standing says where an accept stands after it was shown to Redis again.
type standing string

const (
	standsKnown    standing = "known"    // its order has a row in Postgres
	standsHeld     standing = "held"     // Redis still holds it
	standsUnloaded standing = "unloaded" // the sale is over, and not in Redis any more
	standsRenewed  standing = "renewed"  // it was lost, and took its units again; another event carries it
	standsLost     standing = "lost"     // it was lost, and its units are gone: it is rejected, with a dead letter
)

// readmit shows accepts of one sale on one partition to Redis. After an error none, some or all of it was done, and it may
// be done again. KindNotLoaded: Redis is not verified yet.
func (r *readmitter) readmit(ctx context.Context, p Partition, saleID string, accepts []told) ([]standing, error) {
	ids := make([]string, len(accepts))
	for i := range accepts {
		ids[i] = accepts[i].OrderID
	}
	known, err := r.store.KnownOrders(ctx, saleID, ids)
	if err != nil {
		return nil, err
	}
	stands := make([]standing, len(accepts))
	var asked []int
	for i, id := range ids {
		if stands[i] = standsKnown; !known[id] {
			asked = append(asked, i)
		}
	}
	for chunk := range slices.Chunk(asked, lua.MaxAdmitBatch) {
		if err := r.ask(ctx, p, saleID, accepts, chunk, stands); err != nil {
			return nil, err
		}
	}
	for _, s := range stands {
		r.metrics.readmitted.WithLabelValues(string(s)).Inc()
	}
	return stands, nil
}

// ask shows Redis those accepts that a chunk names, and buries what can't stand any more.
func (r *readmitter) ask(ctx context.Context, p Partition, saleID string, accepts []told, chunk []int, stands []standing) error {
	requests := make([]lua.AdmitRequest, len(chunk))
	for i, at := range chunk {
		a := &accepts[at]
		requests[i] = lua.AdmitRequest{
			OrderID: a.OrderID, Number: a.Number, UserID: a.UserID, Quantity: a.Quantity,
			KeyHash: a.keyHash, PayloadHash: a.payloadHash, TraceParent: a.TraceParent,
		}
	}
	call, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	reply, err := lua.AdmitAgain(call, r.rdb, r.keys.admit(p, saleID), saleID, requests)
	if err != nil {
		return Wrap(KindUnavailable, err, "Redis did not take lost orders back")
	}
	for i, at := range chunk {
		outcome := reply.Outcomes[i]
		switch {
		case outcome.Code == lua.AdmitUntrusted:
			return Errorf(KindNotLoaded, "Redis is not verified yet")
		case outcome.Code == lua.AdmitNotLoaded:
			stands[at] = standsUnloaded
		case outcome.Code == lua.AdmitAccepted && accepts[at].isHeldBy(outcome.Slot):
			stands[at] = standsHeld
		case outcome.Code == lua.AdmitAccepted:
			stands[at] = standsRenewed
		default:
			if err := r.bury(ctx, &accepts[at].Event, outcome.Code); err != nil {
				return err
			}
			stands[at] = standsLost
		}
	}
	return nil
}

// isHeldBy tells the accept of then from one that was made just now, which may have got the same sequence.
func (e *Event) isHeldBy(slot lua.Slot) bool {
	return slot.Sequence == e.Sequence && slot.AcceptedMS == e.AcceptedAt.UnixMilli()
}

// bury rejects an order that was accepted, lost, and can't be had again. The letter is named by the order, and so written
// once, whoever has it in hand.
func (r *readmitter) bury(ctx context.Context, e *Event, code lua.AdmitCode) error {
	letter := DeadLetter{
		Partition: e.Partition, EntryID: "lost:" + e.OrderID, SaleID: e.SaleID, OrderID: e.OrderID, Payload: e.fields(),
		Reason: LetterRedisLost, Error: "Redis lost the order after it was accepted, and could not take it again: " + string(code),
	}
	if err := r.store.BuryEvent(ctx, letter, e); err != nil {
		return err
	}
	r.metrics.deadLetters.WithLabelValues(LetterRedisLost).Inc()
	r.log.Error("an accepted order was lost by Redis", "sale", e.SaleID, "order", e.OrderID, "buyer", e.UserID, "because", code)
	return nil
}
