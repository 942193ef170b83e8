package lifecycle

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count how orders end, and what is given back for them.
type Metrics struct{ released, expired, cancelled, returned, extended prometheus.Counter }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		released: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_stock_released_total", Help: "Orders whose stock and slot were given back.",
		}),
		expired: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_orders_expired_total", Help: "Orders that were not paid in time.",
		}),
		cancelled: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_orders_cancelled_total", Help: "Orders that their buyers cancelled.",
		}),
		returned: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_orders_returned_total", Help: "Paid orders that were returned.",
		}),
		extended: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_orders_extended_total", Help: "Orders that were given more time to pay.",
		}),
	}
}
