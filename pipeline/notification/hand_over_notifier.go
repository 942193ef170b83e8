package notification

import (
	"context"
	"log/slog"

	"sluice/lua"
	"sluice/pipeline"
)

// HandOverNotifier publishes, counts and logs the orders that a script made for people on a waitlist. They are accepts
// like any other: their events are in the stream.
type HandOverNotifier struct {
	notifier *Notifier
	metrics  *Metrics
	log      *slog.Logger
}

// NewHandOverNotifier returns a HandOverNotifier. Without metrics (nil) nothing is exported.
func NewHandOverNotifier(notifier *Notifier, m *Metrics, log *slog.Logger) *HandOverNotifier {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &HandOverNotifier{notifier: notifier, metrics: m, log: log}
}

// PublishLeft publishes that the order of a waitlist entry will not be made: its buyer has left.
func (n *HandOverNotifier) PublishLeft(ctx context.Context, saleID string, p pipeline.Partition, orderID string) {
	n.notifier.Publish(ctx, []Change{{p, saleID, orderID}})
}

// Publish publishes what a script handed over of a sale on a partition.
func (n *HandOverNotifier) Publish(ctx context.Context, saleID string, p pipeline.Partition, handed lua.HandedOver) {
	n.metrics.handedOver.Add(float64(len(handed.Orders)))
	n.metrics.dropped.Add(float64(len(handed.Dropped)))
	if len(handed.Dropped) > 0 {
		n.log.Error("people were taken off the waitlist: Redis had them as buyers too, or nothing readable of them",
			"sale", saleID, "partition", p, "users", handed.Dropped)
	}
	if len(handed.Orders) == 0 {
		return
	}
	n.log.Info("units handed over to people who waited", "sale", saleID, "partition", p, "orders", len(handed.Orders))
	changed := make([]Change, len(handed.Orders))
	for i, id := range handed.Orders {
		changed[i] = Change{p, saleID, id}
	}
	n.notifier.Publish(ctx, changed)
}
