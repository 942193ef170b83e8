package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/pipeline"
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
	jobSucceeded  *prometheus.GaugeVec
	jobInterval   *prometheus.GaugeVec
}

// persistDelays are the buckets of the delays from accept to commit, in seconds. One ends at the objective of 1 s.
var persistDelays = []float64{
	0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64,
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered. Gauges without a label are vectors, too,
// so that only the processes that set them export them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		persisted: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_orders_persisted_total", Help: "Order events by what Postgres made of them.",
		}, []string{"outcome"}),
		persistDelay: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_delay_seconds", Help: "From accept to commit.",
			Buckets: persistDelays,

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		persistBatch: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_batch_size", Help: "Orders per transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11), // 1 … 1024

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
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
		jobSucceeded: gauge("sluice_job_last_success_timestamp_seconds",
			"When this process last did a background job without an error, or else when it started, as Unix time.", "name"),
		jobInterval: gauge("sluice_job_interval_seconds", "How often a background job is due.", "name"),
	}
	for _, reason := range []string{reclaimDead, reclaimIdle} { // from 0 on, so that the first one shows
		m.reclaims.WithLabelValues(reason)
	}
	return m
}

// Why pending entries are taken over.
const (
	reclaimDead = "dead_worker" // its heartbeat is gone
	reclaimIdle = "idle"        // nobody has finished them for long
)

// SetAlive sets the number of workers with a heartbeat, as a process sees it that is no worker.
func (m *Metrics) SetAlive(workers int) { m.workersAlive.WithLabelValues().Set(float64(workers)) }

// jobDone notes that a job was done now. Each is noted once at the start as well, so that one which never succeeds is
// as old as the process.
func (m *Metrics) jobDone(job pipeline.Job) {
	m.jobSucceeded.WithLabelValues(job.Name).SetToCurrentTime()
	m.jobInterval.WithLabelValues(job.Name).Set(job.Every.Seconds())
}

// StepFailed counts a step of the worker, or of a job that runs beside it, that failed and will be repeated.
func (m *Metrics) StepFailed(step string) { m.errors.WithLabelValues(step).Inc() }
