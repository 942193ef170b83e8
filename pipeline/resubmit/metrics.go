package resubmit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ResubmitMetrics count the accepts that were shown to Redis again.
type Metrics struct{ accepts *prometheus.CounterVec }

// NewResubmitMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{accepts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_accepts_readmitted_total",
		Help: "Accepts shown to Redis again after it was verified, by where they stand."}, []string{"standing"})}
}
