package moves

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts moves.
type Metrics struct {
	moves *prometheus.CounterVec
	units prometheus.Counter
	seeks *prometheus.CounterVec
}

// NewMetrics registers the metrics. Without a registry nothing is exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_moves_total", Help: "Moves of units between partitions of a sale that this process ended, by state.",
		}, []string{"state"}),
		units: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_moved_units_total", Help: "Units that this process moved between partitions of a sale.",
		}),
		seeks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_unit_seeks_total",
			Help: "Looks at all partitions of a sale for units that a buyer's own lacks, by result.",
		}, []string{"result"}),
	}
	// From 0 on, or the first one of a process would be no increase.
	for _, state := range []State{Given, Void} {
		m.moves.WithLabelValues(string(state))
	}
	for _, result := range []string{"brought", "sold-out", "remembered", "unknown"} {
		m.seeks.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.moves, m.units, m.seeks)
	}
	return m
}

func (m *Metrics) ended(move Move) {
	m.moves.WithLabelValues(string(move.State)).Inc()
	if move.State == Given {
		m.units.Add(float64(move.Units))
	}
}
