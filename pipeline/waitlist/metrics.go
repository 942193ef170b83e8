package waitlist

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics measure the waitlists. The gauge is a vector of open sales: it shows up only in the processes that set it.
type Metrics struct{ size *prometheus.GaugeVec }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{size: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_waitlist_size", Help: "People who wait for units, by sale that is open and has a waitlist.",
	}, []string{"sale"})}
}
