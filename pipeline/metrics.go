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
	admissionLevels   *prometheus.CounterVec
	persisted         *prometheus.CounterVec
	persistDelay      prometheus.Histogram
	persistBatch      prometheus.Histogram
	reclaims          *prometheus.CounterVec
	contended         prometheus.Counter
	eventsLost        prometheus.Counter
	deadLetters       *prometheus.CounterVec
	released          prometheus.Counter
	expired           prometheus.Counter
	cancelled         prometheus.Counter
	payments          *prometheus.CounterVec
	workerErrors      *prometheus.CounterVec
	streamLag         *prometheus.GaugeVec
	streamPending     *prometheus.GaugeVec
	oldestPending     *prometheus.GaugeVec
	workersAlive      *prometheus.GaugeVec
	trusted           *prometheus.GaugeVec
	rebuilds          *prometheus.CounterVec
	acceptsMissing    prometheus.Counter
	readmitted        *prometheus.CounterVec
	repaired          *prometheus.CounterVec
	stockRemaining    *prometheus.GaugeVec
	stockDrift        *prometheus.GaugeVec
	lettersWaiting    *prometheus.GaugeVec
	audits            *prometheus.CounterVec
	waitlistSize      *prometheus.GaugeVec
	handedOver        prometheus.Counter
	waitlistDropped   prometheus.Counter
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
		admissionLevels: counter("sluice_admissions_durability_total", "Receipts by what was confirmed before they were given.", "level"),
		persisted:       counter("sluice_orders_persisted_total", "Order events by what Postgres made of them.", "outcome"),
		persistDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_delay_seconds", Help: "From accept to commit.", Buckets: seconds}),
		persistBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_persist_batch_size", Help: "Orders per transaction.", Buckets: sizes}),
		reclaims:     counter("sluice_reclaims_total", "Pending entries taken over, by why.", "reason"),
		contended:    prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_lock_contended_total", Help: "Orders left to the worker that holds their lock."}),
		eventsLost:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_events_lost_total", Help: "Pending entries whose event was deleted by somebody else; must stay 0."}),
		deadLetters:  counter("sluice_dead_letters_total", "Events that became dead letters, by why.", "reason"),
		released:     prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_stock_released_total", Help: "Orders whose stock and slot were given back."}),
		expired:      prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_orders_expired_total", Help: "Orders that were not paid in time."}),
		cancelled:    prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_orders_cancelled_total", Help: "Orders that their buyers cancelled."}),
		payments:     counter("sluice_payments_total", "Payments and webhooks about them, by what became of them.", "outcome"),
		workerErrors: counter("sluice_worker_errors_total", "Failed worker steps that will be repeated, by step.", "step"),
		// Vectors, also where there is no label: they show up only in the processes that set them.
		streamLag:     gauge("sluice_stream_lag", "Events not yet delivered to a worker.", "partition"),
		streamPending: gauge("sluice_stream_pending", "Events delivered and not yet acknowledged.", "partition"),
		oldestPending: gauge("sluice_stream_oldest_pending_age_seconds", "Age of the oldest event that is delivered and not acknowledged."),
		workersAlive:  gauge("sluice_workers_alive", "Workers with a heartbeat."),
		trusted:       gauge("sluice_redis_trusted", "Whether Redis' state is verified: 1, or 0 while nobody is admitted.", "partition"),
		rebuilds:      counter("sluice_rebuilds_total", "Sales rebuilt in Redis, by what was found lost.", "reason"),
		acceptsMissing: prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_accepts_missing_total",
			Help: "Accepts that a rebuild found neither in Postgres nor in the stream; some come back, see sluice_accepts_readmitted_total."}),
		readmitted: counter("sluice_accepts_readmitted_total", "Accepts shown to Redis again after it was verified, by where they stand.", "standing"),
		repaired:   counter("sluice_stock_repaired_total", "Units that repairs put back into stock, or took out of it.", "direction"),
		// The four below: of the one worker that watches over the books.
		stockRemaining: gauge("sluice_stock_remaining", "Units left in Redis.", "sale"),
		stockDrift:     gauge("sluice_stock_drift", "Units that are missing (more than 0) or sold twice (less than 0); must stay 0.", "sale"),
		lettersWaiting: gauge("sluice_dead_letters_waiting", "Dead letters that wait for an operator."),
		audits:         counter("sluice_audits_total", "Audits of a sale's buyers, by result.", "result"),
		waitlistSize:   gauge("sluice_waitlist_size", "People who wait for units, by sale that is open and has a waitlist.", "sale"),
		handedOver:     prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_waitlist_handovers_total", Help: "Orders made by this process for people who waited."}),
		waitlistDropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_waitlist_dropped_total",
			Help: "People taken off a waitlist because of what Redis held of them; must stay 0."}),
	}
	if reg != nil {
		reg.MustRegister(m.admissions, m.admissionDuration, m.admissionBatch, m.admissionRetries, m.admissionLevels, m.persisted, m.persistDelay,
			m.persistBatch, m.reclaims, m.contended, m.eventsLost, m.deadLetters, m.released, m.expired, m.cancelled, m.payments, m.workerErrors,
			m.streamLag, m.streamPending, m.oldestPending, m.workersAlive,
			m.trusted, m.rebuilds, m.acceptsMissing, m.readmitted, m.repaired,
			m.stockRemaining, m.stockDrift, m.lettersWaiting, m.audits,
			m.waitlistSize, m.handedOver, m.waitlistDropped)
	}
	return m
}

// rebuilt counts a rebuild of a sale on a partition.
func (m *Metrics) rebuilt(r RebuildReport) {
	m.rebuilds.WithLabelValues(r.Reason).Inc()
	m.acceptsMissing.Add(float64(r.Missing))
	if r.Cause != "repair" {
		return
	}
	if moved := r.StockAfter - r.StockBefore; moved > 0 {
		m.repaired.WithLabelValues("raised").Add(float64(moved))
	} else if moved < 0 {
		m.repaired.WithLabelValues("lowered").Add(float64(-moved))
	}
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
