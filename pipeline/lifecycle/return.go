package lifecycle

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/notification"
)

// Return is what an operator wants to be done with a paid order: its money is to be paid back.
type Return struct {
	SaleID  string
	OrderID string
	Restock bool   // its units go on sale again; otherwise they are withdrawn from the sale
	Actor   string // for the audit log
	Reason  string
}

// ReturnStore returns what may be returned, each order once.
type ReturnStore interface {
	ReturnOrder(ctx context.Context, r Return) (order pipeline.Order, changed bool, err error)
}

// Returner takes paid orders back.
type Returner struct {
	store    ReturnStore
	notifier *notification.Notifier
	metrics  *Metrics
}

// NewReturner returns a Returner over a store.
func NewReturner(store ReturnStore, notifier *notification.Notifier, m *Metrics) *Returner {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Returner{store: store, notifier: notifier, metrics: m}
}

// Return ends a paid order. Its payment becomes due for refund in the same transaction, and its buyer may order again
// once the slot is given back, as after a cancellation. Returning what is returned changes nothing and is no error,
// whatever became of the units then. Errors: KindInvalid; KindNotFound; KindConflict, with the order as it is, when it
// is not paid; KindUnavailable.
func (t *Returner) Return(ctx context.Context, r Return) (pipeline.Order, error) {
	if err := validateOperator(r.Actor, r.Reason); err != nil {
		return pipeline.Order{}, err
	}
	order, changed, err := t.store.ReturnOrder(ctx, r)
	switch {
	case err != nil:
		return pipeline.Order{}, err
	case changed:
		t.metrics.returned.Inc()
		t.notifier.PublishOrders(ctx, []pipeline.Order{order})
		return order, nil
	case order.Status == pipeline.StatusReturned, order.Status == pipeline.StatusRefunded:
		return order, nil // all of its money is, or will be, back
	case order.Status == pipeline.StatusPaid:
		return order, pipeline.Errorf(pipeline.KindConflict,
			"the order is paid, but no payment of it is recorded that could be refunded")
	}
	return order, notReturnable(order.Status)
}

func notReturnable(status pipeline.OrderStatus) error {
	advice := "only a paid order can be returned"
	switch {
	case status.Live():
		advice = "it is not paid; cancel it instead"
	case status == pipeline.StatusRefundDue:
		advice = "it ended before it was paid, and its payment is due for refund already"
	}
	return pipeline.Errorf(pipeline.KindConflict, "the order is %s and can't be returned: %s", status, advice)
}
