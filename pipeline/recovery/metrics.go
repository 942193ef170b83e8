package recovery

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/pipeline"
)

// Metrics say whether Redis is trusted, what was rebuilt, and whether the books balance. Gauges are vectors even where
// they have no label, so that only the processes that set them export them.
type Metrics struct {
	trusted        *prometheus.GaugeVec
	rebuilds       *prometheus.CounterVec
	acceptsMissing prometheus.Counter
	uncovered      prometheus.Counter
	ledgerLosses   prometheus.Counter
	ordersRestored prometheus.Counter
	repaired       *prometheus.CounterVec
	// Those below are exported by the one Reconciler that is elected.
	stockRemaining *prometheus.GaugeVec
	stockDrift     *prometheus.GaugeVec
	lettersWaiting *prometheus.GaugeVec
	audits         *prometheus.CounterVec
	booksChecked   *prometheus.GaugeVec
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		trusted: gauge("sluice_redis_trusted",
			"Whether Redis' state is verified: 1, or 0 while nobody is admitted.", "partition"),
		rebuilds: counter("sluice_rebuilds_total", "Sales rebuilt in Redis, by what was found lost.", "reason"),
		acceptsMissing: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_accepts_missing_total",
			Help: "Accepts that a rebuild found neither in Postgres nor in the stream; some come back, " +
				"see sluice_accepts_readmitted_total.",
		}),
		ledgerLosses: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_ledger_losses_total",
			Help: "Times that Postgres was found to have forgotten what Redis knows; every attempt to store it again counts.",
		}),
		ordersRestored: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_ledger_orders_restored_total",
			Help: "Orders that Postgres had forgotten, and that were stored again from Redis.",
		}),
		uncovered: factory.NewCounter(prometheus.CounterOpts{
			Name: "sluice_accept_journals_uncovered_total",
			Help: "Accept journals that a verification of Redis waited for in vain.",
		}),
		repaired: counter("sluice_stock_repaired_total",
			"Units that repairs put back into stock, or took out of it.", "direction"),
		stockRemaining: gauge("sluice_stock_remaining", "Units left in Redis.", "sale"),
		stockDrift: gauge("sluice_stock_drift",
			"Units that are missing (more than 0) or too many, so that they could be sold twice (less than 0); must stay 0.",
			"sale"),
		lettersWaiting: gauge("sluice_dead_letters_waiting", "Dead letters that wait for an operator."),
		audits:         counter("sluice_audits_total", "Audits of a sale's buyers, by result.", "result"),
		booksChecked: gauge("sluice_books_checked_timestamp_seconds",
			"When the units of all sales were compared last without an error, as Unix time."),
	}
	// From 0 on, or the first one of a process would be no increase.
	for _, why := range []string{"absent", "accepts", "releases", "waitlist", "moves", "none"} {
		m.rebuilds.WithLabelValues(why)
	}
	for _, direction := range []string{"raised", "lowered"} {
		m.repaired.WithLabelValues(direction)
	}
	for _, result := range []string{"clean", "found", "moving", "failed"} {
		m.audits.WithLabelValues(result)
	}
	return m
}

// rebuilt counts a rebuild of a sale on a partition.
func (m *Metrics) rebuilt(r pipeline.RebuildReport) {
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
