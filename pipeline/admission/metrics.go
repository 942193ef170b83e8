package admission

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/pipeline"
)

// Metrics count order requests and the calls of admit.lua. Labels are bounded: never an order or a buyer.
type Metrics struct {
	requests  *prometheus.CounterVec
	duration  prometheus.Histogram
	batchSize prometheus.Histogram
	retries   prometheus.Counter
	levels    *prometheus.CounterVec

	remembered  prometheus.Counter
	unconfirmed prometheus.Counter
}

// durations are the buckets of the time to an answer, in seconds. One ends at the objective of 50 ms.
var durations = []float64{
	0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8,
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_admissions_total", Help: "Order requests by sale and result.",
		}, []string{"sale", "result"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_admission_duration_seconds", Help: "From request to answer, in the process.",
			Buckets: durations,

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		batchSize: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_admission_batch_size", Help: "Requests per admit call.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11), // 1 … 1024

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		retries: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_admission_retries_total", Help: "Admit calls that failed and were repeated or given up.",
		}),
		remembered: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_admission_remembered_total", Help: "Refusals that were answered from memory, without Redis.",
		}),
		levels: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_admissions_durability_total", Help: "Receipts by what was confirmed before they were given.",
		}, []string{"level"}),
		unconfirmed: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_admissions_unconfirmed_total",
			Help: "Accepts that got no receipt at once, because DURABILITY_STRICT is on and they were not confirmed.",
		}),
	}
}

// resultNotDurable tells refusals of DURABILITY_STRICT from a Redis that does not answer.
const resultNotDurable = "durability-unavailable"

func (m *Metrics) answered(saleID string, result Result, err error, took time.Duration) {
	label := string(result)
	if err != nil {
		label = string(pipeline.KindOf(err))
	}
	if errors.Is(err, ErrDurabilityUnavailable) {
		label = resultNotDurable
	}
	m.requests.WithLabelValues(saleID, label).Inc()
	m.duration.Observe(took.Seconds())
}
