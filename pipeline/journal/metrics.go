package journal

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics show where accepts are kept.
type Metrics struct {
	up           prometheus.Gauge
	disk, memory prometheus.Counter
	bytes        prometheus.Gauge
	overdue      prometheus.Gauge
	corrupt      prometheus.Counter
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	accepts := f.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_accept_journal_accepts_total",
		Help: "Accepts that were journaled before their receipts, by where: disk, or memory while the disk fails or is off.",
	}, []string{"to"})
	return &Metrics{
		up: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_accept_journal_up",
			Help: "1 while accepts are journaled on disk, 0 while they are remembered in memory only.",
		}),
		disk: accepts.WithLabelValues("disk"), memory: accepts.WithLabelValues("memory"),
		bytes: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_accept_journal_bytes",
			Help: "Size of the accept journal on disk: of this process, and of those before it that died.",
		}),
		overdue: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_accept_journal_overdue",
			Help: "Accepts in the journal that Postgres still did not have half a minute later, or was not asked about yet.",
		}),
		corrupt: f.NewCounter(prometheus.CounterOpts{
			Name: "sluice_accept_journal_corrupt_bytes_total",
			Help: "Bytes of journals taken over that were torn or corrupt, and passed over.",
		}),
	}
}
