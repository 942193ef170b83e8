package waitlist

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/ordernumber"
	"sluice/pipeline/retry"
	"sluice/pipeline/sales"
)

const (
	// waitlistTimeout bounds one request about a waitlist, as long as one for an order.
	waitlistTimeout = 2 * time.Second
	// waitlistUnderWay bounds the requests of one process that use a connection, or wait for one. Each writes a row of its
	// own: some thousand a second.
	waitlistUnderWay = 1024
	// waitlistObserve is how old the shown sizes may be.
	waitlistObserve = 5 * time.Second
)

// Store records the entries of waitlists.
type Store interface {
	Generation(ctx context.Context) (pipeline.Generation, error)
	// RecordJoin records an entry, once. ErrStaleGeneration: nothing was recorded, because Redis may have lost the entry.
	RecordJoin(ctx context.Context, generation pipeline.Generation, entry pipeline.WaitlistEntry) error
	// RecordLeave records that the buyer of an entry has left, with the ticket that the leave took. It returns false where
	// an order was made of the entry before. ErrStaleGeneration: nothing was recorded.
	RecordLeave(
		ctx context.Context, generation pipeline.Generation, entry pipeline.WaitlistEntry, ticket int64,
	) (bool, error)
	// LatestWaitlistEntry returns a buyer's latest entry, or a KindNotFound error.
	LatestWaitlistEntry(ctx context.Context, saleID, userID string) (pipeline.WaitlistEntry, error)
	// WaitlistEntry returns the entry of an order, anybody's, or a KindNotFound error.
	WaitlistEntry(ctx context.Context, saleID, orderID string) (pipeline.WaitlistEntry, error)
}

// Service answers buyers who wait for units of a sale that is sold out. Redis decides, in its scripts; a buyer gets the
// answer that it waits, or has left, only after Postgres has recorded that too.
//
// A verification of Redis may come between the two: then Redis may have lost what it decided. What is recorded is
// fenced by the generation as it was before Redis was asked, so that either the verification has read the record, or
// the record is refused and Redis is asked again.
type Service struct {
	rdb       redis.UniversalClient
	keys      pipeline.Keys
	store     Store
	lookup    *lifecycle.Lookup
	numbers   *ordernumber.Generator
	metrics   *Metrics
	handOvers *notification.HandOverNotifier
	slots     chan struct{} // one for each request under way

	generation atomic.Int64 // the newest that is known; 0 before the first
}

// NewService returns a Service over both stores.
func NewService(
	rdb redis.UniversalClient, keys pipeline.Keys, store Store, lookup *lifecycle.Lookup,
	handOvers *notification.HandOverNotifier, m *Metrics,
) *Service {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Service{
		rdb: rdb, keys: keys, store: store, lookup: lookup, numbers: ordernumber.NewGenerator(rdb, keys), metrics: m,
		handOvers: handOvers, slots: make(chan struct{}, waitlistUnderWay),
	}
}

// Join puts a buyer on the waitlist. Asking again while the buyer waits gives the same entry, at the position that it
// has by then. Errors: KindInvalid, KindOverloaded, KindNotLoaded, KindUnavailable (the buyer may or may not wait: ask
// again).
func (w *Service) Join(ctx context.Context, sale *pipeline.Sale, req pipeline.OrderRequest) (Decision, error) {
	if err := req.Validate(); err != nil {
		return Decision{}, err
	}
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Decision{}, err
	}
	defer done()
	request, err := admission.NewRequest(req)
	if err != nil {
		return Decision{}, err
	}
	var number [1]int64
	if err := w.numbers.Take(ctx, number[:]); err != nil {
		return Decision{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not give an order number")
	}
	request.Number = number[0]
	return fenced(ctx, w, func(g pipeline.Generation) (Decision, error) { return w.join(ctx, sale, request, g) })
}

func (w *Service) join(
	ctx context.Context, sale *pipeline.Sale, request lua.AdmitRequest, g pipeline.Generation,
) (Decision, error) {
	p := sale.PartitionOf(request.UserID)
	reply, err := retry.Call(ctx, func(ctx context.Context) (lua.JoinReply, error) {
		return lua.Join(ctx, w.rdb, w.keys.ForSale(p, sale.ID), request)
	})
	if err != nil {
		return Decision{}, err
	}
	d := Decision{
		Result: Result(reply.Code), Position: reply.Position, OrderID: reply.Slot.OrderID,
		OpensAt: time.UnixMilli(reply.OpensMS).UTC(), MaxQuantity: reply.MaxQuantity, Held: reply.Held,
	}
	switch reply.Code { //nolint:exhaustive // the others are decisions about somebody who does not wait
	case lua.JoinNotLoaded:
		if goneFromRedis(sale, time.Now()) {
			d.Result = Closed
			return d, nil
		}
		return d, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not loaded yet", sale.ID)
	case lua.JoinUntrusted:
		return d, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is being verified after a restart", sale.ID)
	case lua.JoinAlreadyWaiting, lua.JoinKeyReused:
		if d.OrderID != "" { // it is the key of an order
			return d, nil
		}
		d.Entry = entryOf(sale.ID, request.UserID, p, reply.Entry)
	case lua.JoinJoined:
		d.Entry = entryOf(sale.ID, request.UserID, p, reply.Entry)
		return d, w.store.RecordJoin(ctx, g, d.Entry)
	}
	return d, nil
}

// overMargin is how long after its window a sale that Redis does not have counts as over, and not as lost, as in
// package admission.
const overMargin = 24 * time.Hour

// goneFromRedis reports whether a sale that Redis does not have is over.
func goneFromRedis(sale *pipeline.Sale, now time.Time) bool {
	return now.Sub(sale.ClosesAt) > overMargin
}

func entryOf(saleID, userID string, p pipeline.Partition, listed lua.WaitlistEntry) pipeline.WaitlistEntry {
	return pipeline.WaitlistEntry{
		SaleID: saleID, OrderID: listed.OrderID, UserID: userID, Number: listed.Number, Quantity: listed.Quantity,
		Partition: p, Ticket: listed.Ticket, KeyHash: listed.KeyHash, PayloadHash: listed.PayloadHash,
		JoinedAt: time.UnixMilli(listed.JoinedMS).UTC(),
	}
}

// Mine returns the standing of a buyer who has joined: the position in the list, or the order that was made. Errors:
// KindNotFound (never joined, or left), KindOverloaded, KindUnavailable.
func (w *Service) Mine(ctx context.Context, sale *pipeline.Sale, userID string) (Standing, error) {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer done()
	mine, err := w.inList(ctx, sale, userID)
	if pipeline.KindOf(err) != pipeline.KindNotFound {
		return mine, err
	}
	entry, err := w.store.LatestWaitlistEntry(ctx, sale.ID, userID)
	switch {
	case err != nil:
		return Standing{}, err
	case !entry.LeftAt.IsZero():
		return Standing{}, errNotWaiting
	}
	return w.ordered(ctx, sale, entry)
}

var errNotWaiting = pipeline.Errorf(pipeline.KindNotFound, "you don't wait for units of this sale")

// inList is a buyer's standing as Redis has it, the entry and the position of one instant.
func (w *Service) inList(ctx context.Context, sale *pipeline.Sale, userID string) (Standing, error) {
	p := sale.PartitionOf(userID)
	pipe := w.rdb.TxPipeline()
	value := pipe.HGet(ctx, w.keys.Waiting(p, sale.ID), userID)
	rank := pipe.ZRank(ctx, w.keys.Waitlist(p, sale.ID), userID)
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) && value.Err() != nil {
		return Standing{}, errNotWaiting
	}
	if err != nil {
		return Standing{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say whether you wait")
	}
	listed, err := lua.ParseWaitlistEntry(value.Val())
	if err != nil {
		return Standing{}, pipeline.Wrap(
			pipeline.KindUnavailable, err, "Redis has an entry of the waitlist that can't be read",
		)
	}
	return Standing{Entry: entryOf(sale.ID, userID, p, listed), Position: rank.Val() + 1}, nil
}

// ordered is the standing of an entry that is not in the list any more: its order was made, or Redis lost it.
func (w *Service) ordered(ctx context.Context, sale *pipeline.Sale, entry pipeline.WaitlistEntry) (Standing, error) {
	_, err := w.lookup.Order(ctx, sale, entry.UserID, entry.OrderID)
	if err == nil {
		return Standing{Entry: entry, Ordered: true}, nil
	}
	if pipeline.KindOf(err) != pipeline.KindNotFound {
		return Standing{}, err
	}
	if err := w.vanished(ctx, &entry); err != nil {
		return Standing{}, err
	}
	return Standing{}, errNotWaiting
}

// Leave takes a buyer off the waitlist. Where a unit came free first, the error is KindConflict, and the entry is
// returned with the id of the order that was made of it. Leaving twice is KindNotFound the second time. Other errors:
// KindOverloaded, KindNotLoaded, KindUnavailable (the buyer may or may not wait: ask again).
func (w *Service) Leave(ctx context.Context, sale *pipeline.Sale, userID string) (Standing, error) {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer done()
	return fenced(ctx, w, func(g pipeline.Generation) (Standing, error) { return w.leave(ctx, sale, userID, g) })
}

func (w *Service) leave(
	ctx context.Context, sale *pipeline.Sale, userID string, g pipeline.Generation,
) (Standing, error) {
	mine, err := w.inList(ctx, sale, userID)
	if pipeline.KindOf(err) == pipeline.KindNotFound { // what has left Redis and is not recorded is recorded now
		mine.Entry, err = w.store.LatestWaitlistEntry(ctx, sale.ID, userID)
		if err == nil && !mine.Entry.LeftAt.IsZero() {
			err = errNotWaiting
		}
	}
	if err != nil {
		return Standing{}, err
	}
	entry := mine.Entry
	var ticket int64
	code, err := retry.Call(ctx, func(ctx context.Context) (lua.LeaveCode, error) {
		code, left, handed, err := lua.Leave(
			ctx, w.rdb, w.keys.ForSale(entry.Partition, sale.ID), sale.ID, pipeline.HandOverMaxLag,
			lua.ReleaseItem{UserID: userID, OrderID: entry.OrderID},
		)
		ticket = left
		w.handOvers.Publish(ctx, sale.ID, entry.Partition, handed)
		return code, err
	})
	switch {
	case errors.Is(err, lua.ErrNotLoaded) && goneFromRedis(sale, time.Now()):
		return Standing{}, errNotWaiting
	case errors.Is(err, lua.ErrNotLoaded), errors.Is(err, lua.ErrUntrusted):
		return Standing{}, pipeline.Wrap(
			pipeline.KindNotLoaded, err, "sale "+sale.ID+" is not loaded, or being verified after a restart",
		)
	case err != nil:
		return Standing{}, err
	case code == lua.LeaveOrdered:
		return Standing{Entry: entry, Ordered: true}, errTurnHasCome
	}
	recorded, err := w.store.RecordLeave(ctx, g, entry, ticket)
	if err == nil && !recorded { // the order was made, and its slot is free again: it has ended
		err = errNotWaiting
	}
	if err == nil {
		w.handOvers.PublishLeft(ctx, sale.ID, entry.Partition, entry.OrderID)
	}
	return mine, err
}

var errTurnHasCome = pipeline.Errorf(
	pipeline.KindConflict, "your turn has come: the order is made, and can be cancelled like any other",
)

// begin takes a slot among the requests under way. done gives it back.
func (w *Service) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	select {
	case w.slots <- struct{}{}:
	default:
		return ctx, nil, pipeline.Errorf(
			pipeline.KindOverloaded, "%d requests about waitlists are under way", waitlistUnderWay,
		)
	}
	ctx, cancel := context.WithTimeout(ctx, waitlistTimeout)
	return ctx, func() {
		cancel()
		<-w.slots
	}, nil
}

// fenced does something that is recorded under the generation as it was before, and repeats it while a verification
// comes between.
func fenced[T any](ctx context.Context, w *Service, do func(pipeline.Generation) (T, error)) (T, error) {
	for {
		g := pipeline.Generation(w.generation.Load())
		var err error
		if g == 0 {
			if g, err = w.store.Generation(ctx); err != nil {
				var none T
				return none, err
			}
			w.generation.Store(int64(g))
		}
		result, err := do(g)
		if !errors.Is(err, pipeline.ErrStaleGeneration) {
			return result, err
		}
		w.generation.CompareAndSwap(int64(g), 0)
		if ctx.Err() != nil {
			return result, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "Redis is being verified; ask again")
		}
	}
}

// Run keeps the metric of how many wait, until the context ends.
func (w *Service) Run(ctx context.Context, catalogue *sales.Catalogue) {
	for ctx.Err() == nil {
		w.observe(ctx, catalogue, time.Now())
		retry.Sleep(ctx, waitlistObserve)
	}
}

// observe drops the sales that are over, so that there are no more labels than open sales with a waitlist.
func (w *Service) observe(ctx context.Context, catalogue *sales.Catalogue, now time.Time) {
	for _, sale := range catalogue.List(now, sales.CatalogueLimit) {
		if sale.Waitlist == 0 {
			continue
		}
		size, err := w.Size(ctx, sale)
		if err != nil || sale.Phase(now) == "closed" {
			w.metrics.size.DeleteLabelValues(sale.ID)
			continue
		}
		w.metrics.size.WithLabelValues(sale.ID).Set(float64(size))
	}
}

// Size returns how many wait for a sale. Errors: KindUnavailable.
func (w *Service) Size(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, waitlistTimeout)
	defer cancel()
	var size int64
	for _, p := range sale.Partitions {
		n, err := w.rdb.ZCard(ctx, w.keys.Waitlist(p, sale.ID)).Result()
		if err != nil {
			return 0, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say how many wait")
		}
		size += n
	}
	return size, nil
}
