package notification

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count the orders that scripts made for people on a waitlist.
type Metrics struct{ handedOver, dropped prometheus.Counter }

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		handedOver: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_waitlist_handovers_total", Help: "Orders made by this process for people who waited.",
		}),
		dropped: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_waitlist_dropped_total",
			Help: "People taken off a waitlist because of what Redis had of them; must stay 0.",
		}),
	}
}

// hubMetrics are those of a Hub.
type hubMetrics struct {
	waiting prometheus.Gauge
	delay   prometheus.Histogram
}

func newHubMetrics(reg prometheus.Registerer) hubMetrics {
	factory := promauto.With(reg)
	return hubMetrics{
		waiting: factory.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_push_waiting", Help: "Clients of this process that wait for changes of an order.",
		}),
		delay: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_push_delay_seconds", Help: "From the message about a change to its delivery to those who wait.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}), // 0.5 ms … 4 s
	}
}
