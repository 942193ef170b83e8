package payments

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count payments, refunds, and webhooks about them, by outcome.
type Metrics struct{ payments, refunds *prometheus.CounterVec }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		payments: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_payments_total", Help: "Payments and webhooks about them, by what became of them.",
		}, []string{"outcome"}),
		refunds: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_refunds_total", Help: "Refunds that were reported, by what became of them.",
		}, []string{"outcome"}),
	}
}
