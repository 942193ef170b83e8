package lifecycle

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/notification"
)

const (
	// MaxExtension is how far from now an order may be given time to pay in one call: a provider that is down for longer
	// is looked at again, and an outage of a day must not take units off sale for a week by a slip of the keyboard.
	MaxExtension = 24 * time.Hour
	// extendBatch is how many orders one transaction extends, for the reason given at ExpireBatch.
	extendBatch = 500
)

// Extension gives one order, or all of a sale that await their payment, time to pay until an instant.
type Extension struct {
	SaleID  string
	OrderID string // empty: all of the sale
	Until   time.Time
	Actor   string // for the audit log
	Reason  string
}

// ExtendStore gives orders more time to pay.
type ExtendStore interface {
	// ExtendOrder extends the one order that is named. It returns the order as it is now, and whether it changed.
	ExtendOrder(ctx context.Context, e Extension) (order pipeline.Order, changed bool, err error)
	// ExtendOrders extends up to limit orders of the sale.
	ExtendOrders(ctx context.Context, e Extension, limit int) ([]pipeline.Order, error)
}

// Extender gives orders more time to pay. It never takes time away: repeating a call changes nothing.
type Extender struct {
	store    ExtendStore
	notifier *notification.Notifier
	metrics  *Metrics
}

// NewExtender returns an Extender over a store.
func NewExtender(store ExtendStore, notifier *notification.Notifier, m *Metrics) *Extender {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Extender{store: store, notifier: notifier, metrics: m}
}

// Order extends one order. One that has as much time already stays as it is, which is no error. Errors: KindInvalid;
// KindNotFound; KindConflict, with the order as it is, when it does not await its payment; KindUnavailable.
func (x *Extender) Order(ctx context.Context, e Extension) (pipeline.Order, error) {
	if err := validateOperator(e.Actor, e.Reason); err != nil {
		return pipeline.Order{}, err
	}
	order, changed, err := x.store.ExtendOrder(ctx, e)
	switch {
	case err != nil:
		return pipeline.Order{}, err
	case changed:
		x.report(ctx, []pipeline.Order{order})
	case order.Status != pipeline.StatusAwaitingPayment:
		return order, pipeline.Errorf(pipeline.KindConflict,
			"the order is %s and does not await its payment: its time can't be extended", order.Status)
	}
	return order, nil
}

// Sale extends all orders of a sale that await their payment and have less time, and returns how many these were. An
// order that is still queued gets its whole time anyway, from when it is stored. After an error some of them may have
// been extended: call again. Errors: KindInvalid, KindNotFound, KindUnavailable.
func (x *Extender) Sale(ctx context.Context, e Extension) (int, error) {
	if err := validateOperator(e.Actor, e.Reason); err != nil {
		return 0, err
	}
	extended := 0
	for {
		orders, err := x.store.ExtendOrders(ctx, e, extendBatch)
		if err != nil {
			return extended, err
		}
		extended += len(orders)
		x.report(ctx, orders)
		if len(orders) < extendBatch {
			return extended, nil
		}
	}
}

func (x *Extender) report(ctx context.Context, orders []pipeline.Order) {
	x.metrics.extended.Add(float64(len(orders)))
	x.notifier.PublishOrders(ctx, orders)
}
