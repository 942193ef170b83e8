package pipeline

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	lookupTimeout = 2 * time.Second // all that is read to tell an order's status
	slotTimeout   = time.Second     // the part of it that Redis gets: one that hangs must not take Postgres' time too
)

// OrderSource is where persisted orders are read.
type OrderSource interface {
	Order(ctx context.Context, saleID, orderID string) (Order, error)
	LatestOrder(ctx context.Context, saleID, userID string) (Order, error)
}

// Lookup finds a buyer's orders, wherever they are: in Postgres, or still in the stream.
type Lookup struct {
	rdb    redis.UniversalClient
	keys   Keys
	orders OrderSource
}

// NewLookup returns a Lookup over both stores.
func NewLookup(rdb redis.UniversalClient, keys Keys, orders OrderSource) *Lookup {
	return &Lookup{rdb: rdb, keys: keys, orders: orders}
}

// Order returns an order of this buyer. Somebody else's order is not found. Errors: KindNotFound, KindUnavailable.
func (l *Lookup) Order(ctx context.Context, sale *Sale, userID, orderID string) (Order, error) {
	return l.find(ctx, sale, userID, orderID, func(ctx context.Context) (Order, error) {
		return l.orders.Order(ctx, sale.ID, orderID)
	})
}

// Mine returns the buyer's live order of a sale, or else the latest. Errors: KindNotFound, KindUnavailable.
func (l *Lookup) Mine(ctx context.Context, sale *Sale, userID string) (Order, error) {
	return l.find(ctx, sale, userID, "", func(ctx context.Context) (Order, error) {
		return l.orders.LatestOrder(ctx, sale.ID, userID)
	})
}

// find reads Redis first. A slot whose order Postgres does not have yet is queued: workers free a slot only after the row
// is there, so whatever is missing in both, in this order, does not exist.
func (l *Lookup) find(ctx context.Context, sale *Sale, userID, orderID string, row func(context.Context) (Order, error)) (Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	queued, slotErr := l.slot(ctx, sale, userID)
	isQueued := slotErr == nil && (orderID == "" || queued.ID == orderID)
	order, err := row(ctx)
	switch {
	case err == nil && order.UserID != userID:
		return Order{}, noSuchOrder()
	case err == nil && (order.Status.Live() || orderID != "" || KindOf(slotErr) == KindNotFound):
		return order, nil
	case err == nil && isQueued && queued.ID == order.ID: // ended, and its slot is not given back yet
		return order, nil
	case isQueued && (err == nil || KindOf(err) == KindNotFound):
		return queued, nil
	case err == nil || KindOf(err) == KindNotFound:
		return Order{}, slotErrOr(slotErr)
	}
	return Order{}, err
}

func noSuchOrder() error { return Errorf(KindNotFound, "you have no such order in this sale") }

// slotErrOr says "not found" only when Redis has said so too.
func slotErrOr(slotErr error) error {
	if slotErr != nil && KindOf(slotErr) != KindNotFound {
		return slotErr
	}
	return noSuchOrder()
}

func (l *Lookup) slot(ctx context.Context, sale *Sale, userID string) (Order, error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	p := sale.PartitionOf(userID)
	slot, err := ReadSlot(ctx, l.rdb, l.keys, SalePartition{sale.ID, p}, userID)
	if KindOf(err) == KindNotFound {
		return Order{}, noSuchOrder()
	}
	if err != nil {
		return Order{}, err
	}
	return Order{
		SaleID: sale.ID, ID: slot.OrderID, Number: slot.Number, UserID: userID, Quantity: slot.Quantity,
		Status: StatusQueued, Partition: p, Sequence: slot.Sequence, AcceptedAt: time.UnixMilli(slot.AcceptedMS).UTC(),
	}, nil
}
