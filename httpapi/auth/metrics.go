package auth

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count what becomes of buyers' tokens, and of the fetches of their keys. Labels are bounded: never a buyer, a
// token or a key.
type Metrics struct {
	results    *prometheus.CounterVec
	verified   prometheus.Counter
	remembered prometheus.Counter
	fetches    *prometheus.CounterVec
	fetchedAt  prometheus.Gauge
	keys       prometheus.Gauge
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	results := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_buyer_tokens_total",
		Help: "Requests of buyers by what became of their token: verified, remembered, or why it was refused.",
	}, []string{"result"})
	return &Metrics{
		results: results, verified: results.WithLabelValues("verified"), remembered: results.WithLabelValues("remembered"),
		fetches: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_jwks_fetches_total", Help: "Fetches of the issuer's keys by result: fetched, failed.",
		}, []string{"result"}),
		fetchedAt: factory.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_jwks_fetched_timestamp_seconds",
			Help: "When the issuer's keys were fetched last, as Unix time; 0: never.",
		}),
		keys: factory.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_jwks_keys", Help: "Keys of the issuer that tokens can be verified with.",
		}),
	}
}

func (m *Metrics) refused(why reason) { m.results.WithLabelValues(string(why)).Inc() }

func (m *Metrics) fetched(err error, keys *keySet, at time.Time) {
	if err != nil {
		m.fetches.WithLabelValues("failed").Inc()
		return
	}
	m.fetches.WithLabelValues("fetched").Inc()
	m.fetchedAt.Set(float64(at.Unix()))
	m.keys.Set(float64(len(keys.keys)))
}
