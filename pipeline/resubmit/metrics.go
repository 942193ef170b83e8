package resubmit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count the accepts that were submitted to Redis again.
type Metrics struct{ accepts *prometheus.CounterVec }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{accepts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_accepts_readmitted_total",
		Help: "Accepts submitted to Redis again after it was verified, by where they stand.",
	}, []string{"standing"})}
}
