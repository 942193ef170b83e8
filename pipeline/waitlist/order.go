package waitlist

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// The statuses of an order that is still to be made, and of one that never will be. No row has them: they are of the
// waitlist.
const (
	StatusWaiting pipeline.OrderStatus = "waiting" // for units that come free
	StatusLeft    pipeline.OrderStatus = "left"    // the buyer has left the waitlist before; final
)

// The versions of these statuses, beside those of orders: 0 is queued, a row counts from 1.
const (
	versionWaiting = -1
	versionLeft    = 1
)

// Order is an order as its buyer sees it: one that is made, or one that is to be made when the buyer's turn comes.
type Order struct {
	pipeline.Order
	JoinedAt time.Time // the waitlist; zero once the order is made
	Position int64     // from 1, while the buyer waits: how many are served before, plus one
	Exact    bool      // of the position: the sale has one list, and not one on each of several partitions
}

// Final reports whether nobody waits for the order to change any more: its buyer has left the waitlist, or it is final
// as an order that is made.
func (o *Order) Final() bool { return o.Status == StatusLeft || o.Status.Final() }

// Order returns the order that a buyer waits for or has waited for, under the id that was given on joining. Errors:
// KindNotFound, also for somebody else's; KindOverloaded; KindUnavailable.
//
// The list is read before the order: an entry leaves the list in the very step that makes its order, so that what is
// neither in the list nor, afterwards, an order is not waited for.
func (w *Service) Order(ctx context.Context, sale *pipeline.Sale, userID, orderID string) (Order, error) {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Order{}, err
	}
	defer done()
	mine, err := w.inList(ctx, sale, userID)
	if err == nil && mine.Entry.OrderID == orderID {
		return waitingOrder(sale, &mine), nil
	}
	if err != nil && pipeline.KindOf(err) != pipeline.KindNotFound {
		return Order{}, err
	}
	order, none := w.lookup.Order(ctx, sale, userID, orderID)
	if pipeline.KindOf(none) != pipeline.KindNotFound {
		return Order{Order: order}, none
	}
	entry, err := w.store.WaitlistEntry(ctx, sale.ID, orderID)
	switch {
	case pipeline.KindOf(err) == pipeline.KindNotFound, err == nil && entry.UserID != userID:
		return Order{}, none
	case err != nil:
		return Order{}, err
	case !entry.LeftAt.IsZero():
		return leftOrder(&entry), nil
	}
	if err := w.vanished(ctx, &entry); err != nil {
		return Order{}, err
	}
	return Order{}, none
}

// MyOrder returns the buyer's live order of a sale, or else the one that the buyer waits for, or else the latest of
// both kinds. Errors: KindNotFound, KindOverloaded, KindUnavailable.
func (w *Service) MyOrder(ctx context.Context, sale *pipeline.Sale, userID string) (Order, error) {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return Order{}, err
	}
	defer done()
	mine, err := w.inList(ctx, sale, userID)
	if err == nil {
		return waitingOrder(sale, &mine), nil
	}
	if pipeline.KindOf(err) != pipeline.KindNotFound {
		return Order{}, err
	}
	order, none := w.lookup.Mine(ctx, sale, userID)
	if none == nil && order.Status.Live() || none != nil && pipeline.KindOf(none) != pipeline.KindNotFound {
		return Order{Order: order}, none
	}
	entry, err := w.store.LatestWaitlistEntry(ctx, sale.ID, userID)
	newer := err == nil && entry.OrderID != order.ID && entry.JoinedAt.After(order.AcceptedAt)
	switch {
	case err != nil && pipeline.KindOf(err) != pipeline.KindNotFound:
		return Order{}, err
	case !newer:
		return Order{Order: order}, none
	case !entry.LeftAt.IsZero():
		return leftOrder(&entry), nil
	}
	if err := w.vanished(ctx, &entry); err != nil {
		return Order{}, err
	}
	return Order{Order: order}, none
}

// vanished returns an error about an entry that has not ended and is in no list while Redis is being verified: it will
// be there again.
func (w *Service) vanished(ctx context.Context, e *pipeline.WaitlistEntry) error {
	at := pipeline.SalePartition{SaleID: e.SaleID, Partition: e.Partition}
	return redisstore.RequireVerified(ctx, w.rdb, w.keys, at, "your position")
}

func waitingOrder(sale *pipeline.Sale, s *Standing) Order {
	o := ofEntry(&s.Entry)
	o.Status, o.Version, o.Position, o.Exact = StatusWaiting, versionWaiting, s.Position, Exact(sale)
	return o
}

func leftOrder(e *pipeline.WaitlistEntry) Order {
	o := ofEntry(e)
	o.Status, o.Version, o.ClosedAt = StatusLeft, versionLeft, e.LeftAt
	return o
}

func ofEntry(e *pipeline.WaitlistEntry) Order {
	return Order{JoinedAt: e.JoinedAt, Order: pipeline.Order{
		SaleID: e.SaleID, ID: e.OrderID, Number: e.Number, UserID: e.UserID, Quantity: e.Quantity, Partition: e.Partition,
	}}
}

// Exact reports whether a position in the waitlist of a sale counts all who are served before. A sale on several
// partitions has a list on each, and units that come free on one go to the list of that one: then a position counts the
// buyers of its own list.
func Exact(sale *pipeline.Sale) bool { return len(sale.Partitions) == 1 }
