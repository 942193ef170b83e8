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
	// waitlistUnderWay bounds the requests of one process that hold a connection, or wait for one. Each writes a row of its
	// own: some thousand a second.
	waitlistUnderWay = 1024
	// waitlistObserve is how old the shown sizes may be.
	waitlistObserve = 5 * time.Second
)

// WaitlistStore notes who waits.
type Store interface {
	Generation(ctx context.Context) (pipeline.Generation, error)
	// NoteJoin notes a stay, once. ErrStaleGeneration: nothing was noted, because Redis may have lost it.
	RecordJoin(ctx context.Context, generation pipeline.Generation, s pipeline.WaitlistEntry) error
	// NoteLeave notes that a stay has ended, with the ticket that the leave took. It returns false where an order was made of
	// it before. ErrStaleGeneration: nothing was noted.
	RecordLeave(ctx context.Context, generation pipeline.Generation, s pipeline.WaitlistEntry, ticket int64) (bool, error)
	// LatestStay returns a buyer's latest stay, or a KindNotFound error.
	LatestWaitlistEntry(ctx context.Context, saleID, userID string) (pipeline.WaitlistEntry, error)
}

// Waitlist answers buyers who wait for units of a sale that is sold out. Redis decides, in its scripts; whoever is told that
// he waits, or that he has left, has that in Postgres too.
//
// A verification of Redis may come between the two: then Redis may have lost what it decided. What is noted is fenced by the
// generation as it was before Redis was asked, so that either the verification has read the note, or the note is refused and
// Redis is asked again.
type Service struct {
	rdb       redis.UniversalClient
	keys      pipeline.Keys
	store     Store
	lookup    *lifecycle.Lookup
	numbers   *ordernumber.Generator
	metrics   *Metrics
	handOvers *notification.HandOverNotifier
	slots     chan struct{} // one for each request under way

	generation atomic.Int64 // the newest that was heard of; 0 before the first
}

// NewWaitlist returns a Waitlist over both stores.
func NewService(
	rdb redis.UniversalClient, keys pipeline.Keys, store Store, lookup *lifecycle.Lookup, handOvers *notification.HandOverNotifier, m *Metrics,
) *Service {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Service{
		rdb: rdb, keys: keys, store: store, lookup: lookup, numbers: ordernumber.NewGenerator(rdb, keys), metrics: m,
		handOvers: handOvers, slots: make(chan struct{}, waitlistUnderWay),
	}
}

// Join lets a buyer wait. Asking again while he waits gives the same stay, at the place where he is by then. Errors:
// KindInvalid, KindOverloaded, KindNotLoaded, KindUnavailable (he may or may not wait: ask again).
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

func (w *Service) join(ctx context.Context, sale *pipeline.Sale, request lua.AdmitRequest, g pipeline.Generation) (Decision, error) {
	p := sale.PartitionOf(request.UserID)
	reply, err := retry.Call(ctx, func(ctx context.Context) (lua.JoinReply, error) {
		return lua.Join(ctx, w.rdb, w.keys.ForSale(p, sale.ID), request)
	})
	if err != nil {
		return Decision{}, err
	}
	d := Decision{
		Result: Result(reply.Code), Position: reply.Position, OrderID: reply.Slot.OrderID,
		OpensAt: time.UnixMilli(reply.OpensMS).UTC(), MaxQuantity: reply.MaxQuantity,
	}
	switch reply.Code { //nolint:exhaustive // the others are decisions about somebody who does not wait
	case lua.JoinNotLoaded:
		return d, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not loaded yet", sale.ID)
	case lua.JoinUntrusted:
		return d, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is being verified after a restart", sale.ID)
	case lua.JoinAlreadyWaiting, lua.JoinKeyReused:
		d.Entry = stayOf(sale.ID, request.UserID, p, reply.Entry)
	case lua.JoinJoined:
		d.Entry = stayOf(sale.ID, request.UserID, p, reply.Entry)
		return d, w.store.RecordJoin(ctx, g, d.Entry)
	}
	return d, nil
}

func stayOf(saleID, userID string, p pipeline.Partition, place lua.WaitlistEntry) pipeline.WaitlistEntry {
	return pipeline.WaitlistEntry{
		SaleID: saleID, OrderID: place.OrderID, UserID: userID, Number: place.Number, Quantity: place.Quantity, Partition: p,
		Ticket: place.Ticket, KeyHash: place.KeyHash, PayloadHash: place.PayloadHash, JoinedAt: time.UnixMilli(place.JoinedMS).UTC(),
	}
}

// Mine returns how a buyer stands who has joined: the place in the list, or the order that was made. Errors: KindNotFound
// (never joined, or left), KindOverloaded, KindUnavailable.
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
	stay, err := w.store.LatestWaitlistEntry(ctx, sale.ID, userID)
	switch {
	case err != nil:
		return Standing{}, err
	case !stay.LeftAt.IsZero():
		return Standing{}, errNotWaiting
	}
	return w.ordered(ctx, sale, stay)
}

var errNotWaiting = pipeline.Errorf(pipeline.KindNotFound, "you don't wait for units of this sale")

// inList is a buyer's place as Redis has it, the entry and the position of one instant.
func (w *Service) inList(ctx context.Context, sale *pipeline.Sale, userID string) (Standing, error) {
	p := sale.PartitionOf(userID)
	pipe := w.rdb.TxPipeline()
	entry := pipe.HGet(ctx, w.keys.Waiting(p, sale.ID), userID)
	rank := pipe.ZRank(ctx, w.keys.Waitlist(p, sale.ID), userID)
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) && entry.Err() != nil {
		return Standing{}, errNotWaiting
	}
	if err != nil {
		return Standing{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell who waits")
	}
	place, err := lua.ParseWaitlistEntry(entry.Val())
	if err != nil {
		return Standing{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis holds an entry of the waitlist that can't be read")
	}
	return Standing{Entry: stayOf(sale.ID, userID, p, place), Position: rank.Val() + 1}, nil
}

// ordered is a stay that is not in the list any more: its order was made, or it was cut short.
func (w *Service) ordered(ctx context.Context, sale *pipeline.Sale, stay pipeline.WaitlistEntry) (Standing, error) {
	_, err := w.lookup.Order(ctx, sale, stay.UserID, stay.OrderID)
	if err == nil {
		return Standing{Entry: stay, Ordered: true}, nil
	}
	if pipeline.KindOf(err) != pipeline.KindNotFound {
		return Standing{}, err
	}
	state, _, err := lua.ReadTrust(ctx, w.rdb, w.keys.Look(stay.Partition))
	switch {
	case err != nil:
		return Standing{}, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell whether it is verified")
	case state != lua.Trusted:
		return Standing{}, pipeline.Errorf(pipeline.KindUnavailable, "sale %s is being verified after a restart: your place shows again then", sale.ID)
	}
	return Standing{}, errNotWaiting
}

// Leave ends a buyer's stay. Who loses against a unit that comes free gets a KindConflict error and the stay with its order:
// it was made. Leaving twice is KindNotFound the second time. Other errors: KindOverloaded, KindNotLoaded, KindUnavailable (he
// may or may not wait: ask again).
func (w *Service) Leave(ctx context.Context, sale *pipeline.Sale, userID string) (Standing, error) {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer done()
	return fenced(ctx, w, func(g pipeline.Generation) (Standing, error) { return w.leave(ctx, sale, userID, g) })
}

func (w *Service) leave(ctx context.Context, sale *pipeline.Sale, userID string, g pipeline.Generation) (Standing, error) {
	mine, err := w.inList(ctx, sale, userID)
	if pipeline.KindOf(err) == pipeline.KindNotFound { // what left Redis and was not noted is noted now
		mine.Entry, err = w.store.LatestWaitlistEntry(ctx, sale.ID, userID)
		if err == nil && !mine.Entry.LeftAt.IsZero() {
			err = errNotWaiting
		}
	}
	if err != nil {
		return Standing{}, err
	}
	stay := mine.Entry
	var ticket int64
	code, err := retry.Call(ctx, func(ctx context.Context) (lua.LeaveCode, error) {
		code, taken, handed, err := lua.Leave(ctx, w.rdb, w.keys.ForSale(stay.Partition, sale.ID), sale.ID, pipeline.HandOverMaxLag,
			lua.ReleaseItem{UserID: userID, OrderID: stay.OrderID})
		ticket = taken
		w.handOvers.Publish(ctx, sale.ID, stay.Partition, handed)
		return code, err
	})
	switch {
	case errors.Is(err, lua.ErrNotLoaded), errors.Is(err, lua.ErrUntrusted):
		return Standing{}, pipeline.Wrap(pipeline.KindNotLoaded, err, "sale "+sale.ID+" is not loaded, or being verified after a restart")
	case err != nil:
		return Standing{}, err
	case code == lua.LeaveOrdered:
		return Standing{Entry: stay, Ordered: true}, errTurnHasCome
	}
	noted, err := w.store.RecordLeave(ctx, g, stay, ticket)
	if err == nil && !noted { // the order was made, and its slot is free again: it has ended
		err = errNotWaiting
	}
	return mine, err
}

var errTurnHasCome = pipeline.Errorf(pipeline.KindConflict, "your turn has come: the order is made, and can be cancelled like any other")

// begin takes a place among the requests under way. done gives it back.
func (w *Service) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	select {
	case w.slots <- struct{}{}:
	default:
		return ctx, nil, pipeline.Errorf(pipeline.KindOverloaded, "%d requests about waitlists are under way", waitlistUnderWay)
	}
	ctx, cancel := context.WithTimeout(ctx, waitlistTimeout)
	return ctx, func() {
		cancel()
		<-w.slots
	}, nil
}

// fenced does something that is noted under the generation as it was before, again and again while a verification comes
// between.
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

// observe drops the sales that are over, so that the labels stay as many as there are open sales with a waitlist.
func (w *Service) observe(ctx context.Context, catalogue *sales.Catalogue, now time.Time) {
	for _, sale := range catalogue.List(now, sales.CatalogueLimit) {
		if sale.Waitlist == 0 {
			continue
		}
		people, err := w.Size(ctx, sale)
		if err != nil || sale.Phase(now) == "closed" {
			w.metrics.size.DeleteLabelValues(sale.ID)
			continue
		}
		w.metrics.size.WithLabelValues(sale.ID).Set(float64(people))
	}
}

// People returns how many wait for a sale. Errors: KindUnavailable.
func (w *Service) Size(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, waitlistTimeout)
	defer cancel()
	var people int64
	for _, p := range sale.Partitions {
		n, err := w.rdb.ZCard(ctx, w.keys.Waitlist(p, sale.ID)).Result()
		if err != nil {
			return 0, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not tell how many wait")
		}
		people += n
	}
	return people, nil
}
