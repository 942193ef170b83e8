package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count what workers do with events, and measure the streams. Labels are bounded: never an order or a buyer.
type Metrics struct {
	persisted     *prometheus.CounterVec
	persistDelay  prometheus.Histogram
	persistBatch  prometheus.Histogram
	reclaims      *prometheus.CounterVec
	contended     prometheus.Counter
	eventsLost    prometheus.Counter
	errors        *prometheus.CounterVec
	streamLag     *prometheus.GaugeVec
	streamPending *prometheus.GaugeVec
	oldestPending *prometheus.GaugeVec
	workersAlive  *prometheus.GaugeVec
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered. Gauges without a label are vectors, too,
// so that only the processes that set them export them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		persisted: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_orders_persisted_total", Help: "Order events by what Postgres made of them.",
		}, []string{"outcome"}),
		persistDelay: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_delay_seconds", Help: "From accept to commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), // 0.5 ms … 16 s
		}),
		persistBatch: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_batch_size", Help: "Orders per transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11), // 1 … 1024
		}),
		reclaims: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_reclaims_total", Help: "Pending entries taken over, by why.",
		}, []string{"reason"}),
		contended: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_lock_contended_total", Help: "Orders left to the worker that holds their lock.",
		}),
		eventsLost: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_events_lost_total", Help: "Pending entries whose event was deleted by somebody else; must stay 0.",
		}),
		errors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_worker_errors_total", Help: "Failed worker steps that will be repeated, by step.",
		}, []string{"step"}),
		streamLag:     gauge("sluice_stream_lag", "Events not yet delivered to a worker.", "partition"),
		streamPending: gauge("sluice_stream_pending", "Events delivered and not yet acknowledged.", "partition"),
		oldestPending: gauge("sluice_stream_oldest_pending_age_seconds",
			"Age of the oldest event that is delivered and not acknowledged."),
		workersAlive: gauge("sluice_workers_alive", "Workers with a heartbeat."),
	}
}

// StepFailed counts a step of the worker, or of a job that runs beside it, that failed and will be repeated.
func (m *Metrics) StepFailed(step string) { m.errors.WithLabelValues(step).Inc() }
