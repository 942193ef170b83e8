package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/notification"
)

const (
	// expireEvery is how late an order may expire; nobody is promised the second.
	expireEvery = 500 * time.Millisecond
	// ExpireBatch is how many orders one transaction expires: their sale's row is locked for some ten milliseconds then,
	// and persisting waits for it.
	ExpireBatch = 500
)

// ExpireStore expires what is overdue, each order once.
type ExpireStore interface {
	ExpireOrders(ctx context.Context, limit int) ([]pipeline.Order, error)
}

// Expirer ends orders that were not paid in time. Their units are owed to Redis in the transaction that ends them; the
// Releaser brings them there. Running twice, at once or after a crash at any point, expires nothing twice.
type Expirer struct {
	store    ExpireStore
	notifier *notification.Notifier
	metrics  *Metrics
	log      *slog.Logger
}

// NewExpirer returns an Expirer over a store.
func NewExpirer(store ExpireStore, notifier *notification.Notifier, m *Metrics, log *slog.Logger) *Expirer {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Expirer{store: store, notifier: notifier, metrics: m, log: log}
}

// Job expires orders as they become due.
func (e *Expirer) Job() pipeline.Job {
	return pipeline.Job{Name: "expire", Every: expireEvery, Run: e.Expire}
}

// Expire ends every order that is due now. Errors: KindUnavailable; what was expired until then remains expired.
func (e *Expirer) Expire(ctx context.Context) error {
	for ctx.Err() == nil {
		step := pipeline.Uninterrupted(ctx)
		expired, err := e.store.ExpireOrders(step, ExpireBatch)
		if len(expired) > 0 { // also where a later sale's could not be
			e.metrics.expired.Add(float64(len(expired)))
			e.log.Info("orders expired unpaid", "orders", len(expired))
			e.notifier.PublishOrders(step, expired)
		}
		if err != nil || len(expired) < ExpireBatch {
			return err
		}
	}
	return ctx.Err()
}
