package lifecycle

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

const (
	lookupTimeout = 2 * time.Second // all that is read to find an order's status
	slotTimeout   = time.Second     // the part of it that Redis gets: one that hangs must not take Postgres' time too
)

// OrderSource is where persisted orders are read.
type OrderSource interface {
	Order(ctx context.Context, saleID, orderID string) (pipeline.Order, error)
	LatestOrder(ctx context.Context, saleID, userID string) (pipeline.Order, error)
}

// Lookup finds a buyer's orders, wherever they are: in Postgres, or still in the stream.
type Lookup struct {
	rdb    redis.UniversalClient
	keys   pipeline.Keys
	orders OrderSource
}

// NewLookup returns a Lookup over both stores.
func NewLookup(rdb redis.UniversalClient, keys pipeline.Keys, orders OrderSource) *Lookup {
	return &Lookup{rdb: rdb, keys: keys, orders: orders}
}

// Order returns an order of this buyer. Somebody else's order is not found. Errors: KindNotFound, KindUnavailable.
func (l *Lookup) Order(ctx context.Context, sale *pipeline.Sale, userID, orderID string) (pipeline.Order, error) {
	return l.find(ctx, sale, userID, orderID, func(ctx context.Context) (pipeline.Order, error) {
		return l.orders.Order(ctx, sale.ID, orderID)
	})
}

// Mine returns the buyer's live order of a sale, or else the latest. Errors: KindNotFound, KindUnavailable.
func (l *Lookup) Mine(ctx context.Context, sale *pipeline.Sale, userID string) (pipeline.Order, error) {
	return l.find(ctx, sale, userID, "", func(ctx context.Context) (pipeline.Order, error) {
		return l.orders.LatestOrder(ctx, sale.ID, userID)
	})
}

// find looks a second time where the answer is that Redis has no slot: it may have lost one, which is there again once
// the server is verified. An order that has ended is such an answer to the question for the buyer's latest one.
func (l *Lookup) find(
	ctx context.Context, sale *pipeline.Sale, userID, orderID string, row func(context.Context) (pipeline.Order, error),
) (pipeline.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	order, slotFree, err := l.look(ctx, sale, userID, orderID, row)
	older := err == nil && orderID == "" && slotFree && !order.Status.Live()
	if pipeline.KindOf(err) != pipeline.KindNotFound && !older {
		return order, err
	}
	if err := l.verified(ctx, sale, userID); err != nil {
		return pipeline.Order{}, err
	}
	order, _, err = l.look(ctx, sale, userID, orderID, row)
	return order, err
}

// verified returns a KindUnavailable error while what Redis has is not known to be all.
func (l *Lookup) verified(ctx context.Context, sale *pipeline.Sale, userID string) error {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	at := pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}
	return redisstore.RequireVerified(ctx, l.rdb, l.keys, at, "your order, if you have one,")
}

// look reads Redis first. A slot whose order Postgres does not have yet is queued: workers free a slot only after the
// row is there, so whatever is missing in both, in this order, does not exist. It also reports whether Redis said that
// the buyer has no slot.
func (l *Lookup) look(
	ctx context.Context, sale *pipeline.Sale, userID, orderID string, row func(context.Context) (pipeline.Order, error),
) (_ pipeline.Order, slotFree bool, _ error) {
	queued, slotErr := l.slot(ctx, sale, userID)
	slotFree = pipeline.KindOf(slotErr) == pipeline.KindNotFound
	isQueued := slotErr == nil && (orderID == "" || queued.ID == orderID)
	order, err := row(ctx)
	switch {
	case err == nil && order.UserID != userID:
		return pipeline.Order{}, slotFree, noSuchOrder()
	case err == nil && (order.Status.Live() || orderID != "" || slotFree):
		return order, slotFree, nil
	case err == nil && isQueued && queued.ID == order.ID: // ended, and its slot is not given back yet
		return order, slotFree, nil
	case isQueued && (err == nil || pipeline.KindOf(err) == pipeline.KindNotFound):
		return queued, slotFree, nil
	case err == nil || pipeline.KindOf(err) == pipeline.KindNotFound:
		return pipeline.Order{}, slotFree, slotErrOr(slotErr)
	}
	return pipeline.Order{}, slotFree, err
}

func noSuchOrder() error {
	return pipeline.Errorf(pipeline.KindNotFound, "you have no such order in this sale")
}

// slotErrOr says "not found" only when Redis has said so too.
func slotErrOr(slotErr error) error {
	if slotErr != nil && pipeline.KindOf(slotErr) != pipeline.KindNotFound {
		return slotErr
	}
	return noSuchOrder()
}

func (l *Lookup) slot(ctx context.Context, sale *pipeline.Sale, userID string) (pipeline.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	p := sale.PartitionOf(userID)
	slot, err := redisstore.ReadSlot(ctx, l.rdb, l.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p}, userID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return pipeline.Order{}, noSuchOrder()
	}
	if err != nil {
		return pipeline.Order{}, err
	}
	return pipeline.Order{
		SaleID: sale.ID, ID: slot.OrderID, Number: slot.Number, UserID: userID, Quantity: slot.Quantity,
		Status: pipeline.StatusQueued, Partition: p, Sequence: slot.Sequence,
		AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(),
	}, nil
}
