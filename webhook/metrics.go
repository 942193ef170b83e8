package webhook

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the numbers of deliveries. The label endpoint is an endpoint's id: there are at most MaxEndpoints at a
// time.
type Metrics struct {
	deliveries *prometheus.CounterVec
	took       prometheus.Histogram
	backlog    *prometheus.GaugeVec
	failing    *prometheus.GaugeVec
	disabled   *prometheus.GaugeVec
	withheld   *prometheus.GaugeVec
	missed     prometheus.Counter
}

// NewMetrics makes the metrics and registers them; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_webhook_deliveries_total",
			Help: "Deliveries of events by endpoint and result.",
		}, []string{"endpoint", "result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_webhook_delivery_duration_seconds",
			Help:    "From the look-up of the name to the end of the answer.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 13), // 2 ms … 8 s

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		// Vectors, also where there is no label: they appear only in the processes that set them.
		backlog:  gauge("sluice_webhook_backlog", "Events that an endpoint has not passed yet, wanted or not.", "endpoint"),
		failing:  gauge("sluice_webhook_failing_attempts", "Failures in a row of an endpoint's next delivery.", "endpoint"),
		disabled: gauge("sluice_webhook_endpoints_disabled", "Endpoints that get nothing until an operator enables them."),
		withheld: gauge("sluice_webhook_endpoints_withheld",
			"Endpoints whose events wait, because a worker can't decrypt their secret: ENCRYPTION_KEYS lacks the key."),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_webhook_events_missed_total",
			Help: "Events dropped after two weeks that an endpoint had not got.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.deliveries, m.took, m.backlog, m.failing, m.disabled, m.withheld,
			m.missed)
	}
	return m
}

func (m *Metrics) delivered(endpoint int64, r Result) {
	m.deliveries.WithLabelValues(label(endpoint), string(r.Outcome)).Inc()
	m.took.Observe(r.Took.Seconds())
}

// setEndpoints replaces all earlier values, so that a removed endpoint disappears.
func (m *Metrics) setEndpoints(endpoints []Endpoint) {
	m.backlog.Reset()
	m.failing.Reset()
	disabled, withheld := 0, 0
	for i := range endpoints {
		e := &endpoints[i]
		m.backlog.WithLabelValues(label(e.ID)).Set(float64(e.Backlog))
		m.failing.WithLabelValues(label(e.ID)).Set(float64(e.Attempts))
		if e.Disabled() {
			disabled++
		}
		if e.Withheld() {
			withheld++
		}
	}
	m.disabled.WithLabelValues().Set(float64(disabled))
	m.withheld.WithLabelValues().Set(float64(withheld))
}

func label(endpoint int64) string { return strconv.FormatInt(endpoint, 10) }
