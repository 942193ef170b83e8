package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// DeadLetterMetrics count the events that became dead letters.
type DeadLetterMetrics struct{ letters *prometheus.CounterVec }

// NewDeadLetterMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewDeadLetterMetrics(reg prometheus.Registerer) *DeadLetterMetrics {
	return &DeadLetterMetrics{letters: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_dead_letters_total", Help: "Events that became dead letters, by why."}, []string{"reason"})}
}
