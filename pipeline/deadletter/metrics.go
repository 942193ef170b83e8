package deadletter

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count the events that became dead letters.
type Metrics struct{ letters *prometheus.CounterVec }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{letters: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_dead_letters_total", Help: "Events that became dead letters, by why.",
	}, []string{"reason"})}
}
