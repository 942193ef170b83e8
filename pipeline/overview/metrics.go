package overview

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/pipeline/retry"
)

// watchEvery is how old the metrics may be.
const watchEvery = 5 * time.Second

// Metrics are what waits in the stores, as seen by a process that is no worker, so that they are there when every
// worker is gone. Gauges without a label are vectors, too: what a store did not say is absent, and no number of
// before.
type Metrics struct {
	Alive func(workers int) // takes the number of workers with a heartbeat; nil: it is not exported

	length  *prometheus.GaugeVec
	oldest  *prometheus.GaugeVec
	limit   prometheus.Gauge
	refunds *prometheus.GaugeVec
	waiting *prometheus.GaugeVec
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		length: gauge("sluice_stream_length", "Events that are not settled, delivered to a worker or not.", "partition"),
		oldest: gauge("sluice_stream_oldest_age_seconds",
			"Age of the oldest event that is not settled, delivered to a worker or not, by Redis' clock; 0: there is none."),
		limit: factory.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_stream_limit",
			Help: "Events of one partition above which buyers are asked to come back later (STREAM_MAX_LAG).",
		}),
		refunds: gauge("sluice_refunds_due", "Payments that are to be paid back."),
		waiting: gauge("sluice_payments_waiting", "Payments that wait for their order to be stored."),
	}
}

// SetLimit sets how many events may wait on a partition.
func (m *Metrics) SetLimit(events int) { m.limit.Set(float64(events)) }

// Watch refreshes the metrics every few seconds until the context ends: two round trips to Redis, whatever waits there,
// and one query. A scrape asks no store.
func (r *Reader) Watch(ctx context.Context, m *Metrics) {
	for ctx.Err() == nil {
		m.streams(r.lookAtStreams(ctx))
		m.duties(r.lookAtDuties(ctx))
		retry.Sleep(ctx, watchEvery)
	}
}

func (r *Reader) lookAtStreams(ctx context.Context) (*Glance, error) {
	g := &Glance{}
	return g, r.readStreams(ctx, g)
}

func (r *Reader) lookAtDuties(ctx context.Context) (Duties, error) {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	return r.Store.Duties(ctx)
}

func (m *Metrics) streams(g *Glance, err error) {
	if err != nil {
		m.length.Reset()
		m.oldest.Reset()
		return
	}
	for i := range g.Streams {
		m.length.WithLabelValues(g.Streams[i].Partition.String()).Set(float64(g.Streams[i].Length))
	}
	age := 0.0
	if _, _, oldest := g.Lag(); !oldest.IsZero() {
		age = max(0, g.At.Sub(oldest).Seconds())
	}
	m.oldest.WithLabelValues().Set(age)
	if m.Alive != nil {
		m.Alive(g.Alive())
	}
}

func (m *Metrics) duties(d Duties, err error) {
	if err != nil {
		m.refunds.Reset()
		m.waiting.Reset()
		return
	}
	m.refunds.WithLabelValues().Set(float64(d.RefundsDue))
	m.waiting.WithLabelValues().Set(float64(d.PaymentsWaiting))
}
