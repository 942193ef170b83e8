package payments

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count payments, and webhooks about them, by outcome.
type Metrics struct{ payments *prometheus.CounterVec }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{payments: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_payments_total", Help: "Payments and webhooks about them, by what became of them.",
	}, []string{"outcome"})}
}
