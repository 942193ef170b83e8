package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ResubmitMetrics count the accepts that were shown to Redis again.
type ResubmitMetrics struct{ accepts *prometheus.CounterVec }

// NewResubmitMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewResubmitMetrics(reg prometheus.Registerer) *ResubmitMetrics {
	return &ResubmitMetrics{accepts: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_accepts_readmitted_total",
		Help: "Accepts shown to Redis again after it was verified, by where they stand."}, []string{"standing"})}
}
