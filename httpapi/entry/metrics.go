package entry

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The results that are no Flaw and no answer of the hook.
const (
	resultGiven   = "given"
	resultRefused = "refused"
	resultPassed  = "passed"
	resultMissing = "missing"
	resultEarly   = "early"
	resultNoKeys  = "no-keys"
	resultFailed  = "failed"
)

type metrics struct {
	given   prometheus.Counter
	tickets *prometheus.CounterVec
	passed  prometheus.Counter
	checks  *prometheus.CounterVec
	hook    *prometheus.HistogramVec
}

// newMetrics registers the metrics; a nil registerer leaves them unregistered.
func newMetrics(reg prometheus.Registerer) *metrics {
	factory := promauto.With(reg)
	tickets := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_entry_tickets_total",
		Help: "Entry tickets that buyers asked for, by what became of it: given, refused (by the hook) or failed (the hook " +
			"gave no answer, and ENTRY_HOOK_FAIL is closed).",
	}, []string{"result"})
	checks := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_entry_checks_total",
		Help: "Orders and joins that needed an entry ticket, by what became of it: passed, missing, early, malformed, " +
			"unknown-key, forged, expired or no-keys.",
	}, []string{"result"})
	return &metrics{
		given: tickets.WithLabelValues(resultGiven), tickets: tickets,
		passed: checks.WithLabelValues(resultPassed), checks: checks,
		hook: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_entry_hook_seconds",
			Help: "How long ENTRY_HOOK_URL took, by its answer: allowed, refused, failed (no answer in time, or a " +
				"5xx) or busy (too many calls at once: it was not asked).",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 12), // 2 ms … 4 s, the longest ENTRY_HOOK_TIMEOUT

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"answer"}),
	}
}

func (m *metrics) notGiven(err error) {
	if _, refused := errors.AsType[*Refused](err); refused {
		m.tickets.WithLabelValues(resultRefused).Inc()
		return
	}
	if errors.Is(err, ErrNoAnswer) { // else it was not asked, because the buyer had asked too often
		m.tickets.WithLabelValues(resultFailed).Inc()
	}
}

func (m *metrics) checked(err error) {
	if err == nil {
		m.passed.Inc()
		return
	}
	result := resultEarly
	if flaw, ok := errors.AsType[Flaw](err); ok {
		result = string(flaw)
	} else if errors.Is(err, ErrMissing) {
		result = resultMissing
	} else if errors.Is(err, ErrNoKeys) {
		result = resultNoKeys
	}
	m.checks.WithLabelValues(result).Inc()
}

func (m *metrics) asked(a answer, took time.Duration) {
	m.hook.WithLabelValues(string(a)).Observe(took.Seconds())
}
