package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/lua"
)

// Metrics are the numbers of DESIGN section 10 that the pipeline itself counts. Labels are bounded: never an order or
// a buyer.
type Metrics struct {
	admissions        *prometheus.CounterVec
	admissionDuration prometheus.Histogram
	admissionBatch    prometheus.Histogram
	admissionRetries  prometheus.Counter
	persisted         *prometheus.CounterVec
	persistDelay      prometheus.Histogram
	persistBatch      prometheus.Histogram
	reclaims          *prometheus.CounterVec
	contended         prometheus.Counter
	eventsLost        prometheus.Counter
	deadLetters       *prometheus.CounterVec
	released          prometheus.Counter
	workerErrors      *prometheus.CounterVec
	streamLag         *prometheus.GaugeVec
	streamPending     *prometheus.GaugeVec
	oldestPending     *prometheus.GaugeVec
	workersAlive      *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 16) // 0.5 ms … 16 s
	sizes := prometheus.ExponentialBuckets(1, 2, 11)        // 1 … 1024
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		admissions: counter("sluice_admissions_total", "Order requests by sale and result.", "sale", "result"),
		admissionDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_admission_duration_seconds", Help: "From request to answer, in the process.", Buckets: seconds}),
		admissionBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_admission_batch_size", Help: "Requests per admit call.", Buckets: sizes}),
		admissionRetries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_admission_retries_total", Help: "Admit calls that failed and were repeated or given up."}),
		persisted: counter("sluice_orders_persisted_total", "Order events by what Postgres made of them.", "outcome"),
		persistDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_delay_seconds", Help: "From accept to commit.", Buckets: seconds}),
		persistBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_batch_size", Help: "Orders per transaction.", Buckets: sizes}),
		reclaims:     counter("sluice_reclaims_total", "Pending entries taken over, by why.", "reason"),
		contended:    prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_lock_contended_total", Help: "Orders left to the worker that holds their lock."}),
		eventsLost:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_events_lost_total", Help: "Pending entries whose event was deleted by somebody else; must stay 0."}),
		deadLetters:  counter("sluice_dead_letters_total", "Events that became dead letters, by why.", "reason"),
		released:     prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_stock_released_total", Help: "Orders whose stock and slot were given back."}),
		workerErrors: counter("sluice_worker_errors_total", "Failed worker steps that will be repeated, by step.", "step"),
		// Vectors, also where there is no label: they show up only in the processes that set them.
		streamLag:     gauge("sluice_stream_lag", "Events not yet delivered to a worker.", "partition"),
		streamPending: gauge("sluice_stream_pending", "Events delivered and not yet acknowledged.", "partition"),
		oldestPending: gauge("sluice_stream_oldest_pending_age_seconds", "Age of the oldest event that is delivered and not acknowledged."),
		workersAlive:  gauge("sluice_workers_alive", "Workers with a heartbeat."),
	}
	if reg != nil {
		reg.MustRegister(m.admissions, m.admissionDuration, m.admissionBatch, m.admissionRetries, m.persisted, m.persistDelay,
			m.persistBatch, m.reclaims, m.contended, m.eventsLost, m.deadLetters, m.released, m.workerErrors, m.streamLag, m.streamPending, m.oldestPending, m.workersAlive)
	}
	return m
}

func (m *Metrics) admitted(saleID string, code lua.AdmitCode, err error, took time.Duration) {
	result := string(code)
	if err != nil {
		result = string(KindOf(err))
	}
	m.admissions.WithLabelValues(saleID, result).Inc()
	m.admissionDuration.Observe(took.Seconds())
}

func (m *Metrics) admitBatch(n int) { m.admissionBatch.Observe(float64(n)) }
func (m *Metrics) admitRetried()    { m.admissionRetries.Inc() }
