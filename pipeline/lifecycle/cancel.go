package lifecycle

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/notification"
	"sluice/pipeline/retry"
)

const (
	// cancelWaitLimit is how long a cancellation waits for a worker to persist the order: some hundred times what that
	// takes, unless there is a backlog.
	cancelWaitLimit = 2 * time.Second
	// cancelPollEvery is how often it tries again meanwhile.
	cancelPollEvery = 50 * time.Millisecond
)

// CancelStore cancels what may be cancelled, each order once.
type CancelStore interface {
	CancelOrder(ctx context.Context, saleID, orderID, userID string) (order pipeline.Order, changed bool, err error)
	CancelOrderAs(
		ctx context.Context, saleID, orderID, actor, reason string,
	) (order pipeline.Order, changed bool, err error)
}

// Canceller ends orders that their buyers no longer want.
type Canceller struct {
	lookup   *Lookup
	store    CancelStore
	notifier *notification.Notifier
	metrics  *Metrics
}

// NewCanceller returns a Canceller over both stores.
func NewCanceller(lookup *Lookup, store CancelStore, notifier *notification.Notifier, m *Metrics) *Canceller {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Canceller{lookup: lookup, store: store, notifier: notifier, metrics: m}
}

// Cancel ends an order of this buyer and returns it as it is then. Cancelling what is cancelled changes nothing and is
// no error. An order that is still queued can't be cancelled before it is stored: Cancel waits up to two seconds for
// that. Errors: KindNotFound; KindConflict, with the order as it is, when it is paid or has ended otherwise;
// KindOverloaded when it is still queued; KindUnavailable.
func (c *Canceller) Cancel(ctx context.Context, sale *pipeline.Sale, userID, orderID string) (pipeline.Order, error) {
	until := time.Now().Add(cancelWaitLimit)
	for {
		order, changed, err := c.store.CancelOrder(ctx, sale.ID, orderID, userID)
		if pipeline.KindOf(err) != pipeline.KindNotFound {
			return c.cancelled(ctx, order, changed, err)
		}
		if order, err = c.lookup.Order(ctx, sale, userID, orderID); err != nil {
			return pipeline.Order{}, err
		}
		if time.Now().After(until) {
			return order, pipeline.Errorf(
				pipeline.KindOverloaded, "the order is still queued and can be cancelled once it is stored",
			)
		}
		retry.Sleep(ctx, cancelPollEvery)
		if ctx.Err() != nil {
			return order, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "the order was not stored in time to cancel it")
		}
	}
}

// CancelAs ends an order for an operator, who is named in the audit log with the reason, and reports whether it did: an
// order that is cancelled stays as it is. The order must be in Postgres.
//
// Errors: KindInvalid; KindNotFound; KindConflict, with the order as it is, when it is paid or has ended otherwise;
// KindUnavailable.
func (c *Canceller) CancelAs(
	ctx context.Context, saleID, orderID, actor, reason string,
) (order pipeline.Order, changed bool, err error) {
	if err := validateOperator(actor, reason); err != nil {
		return pipeline.Order{}, false, err
	}
	order, changed, err = c.store.CancelOrderAs(ctx, saleID, orderID, actor, reason)
	order, err = c.cancelled(ctx, order, changed, err)
	return order, changed, err
}

// cancelled publishes and counts what a cancellation changed.
func (c *Canceller) cancelled(
	ctx context.Context, order pipeline.Order, changed bool, err error,
) (pipeline.Order, error) {
	switch {
	case err != nil:
		return pipeline.Order{}, err
	case changed:
		c.metrics.cancelled.Inc()
		c.notifier.PublishOrders(ctx, []pipeline.Order{order})
	case order.Status != pipeline.StatusCancelled:
		return order, pipeline.Errorf(pipeline.KindConflict, "the order is %s and can't be cancelled", order.Status)
	}
	return order, nil
}

// validateOperator checks what the audit log says of an operator who changes orders.
func validateOperator(actor, reason string) error {
	if err := pipeline.ValidateActor(actor); err != nil {
		return err
	}
	return pipeline.ValidateReason(reason)
}
