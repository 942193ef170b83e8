package process

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	clocksEvery = time.Second
	// clockTimeout bounds one reading: half of what it takes is the error of the offset.
	clockTimeout = time.Second
)

// watchClocks measures how far the clocks of both stores are from this process' own, until the context ends. A store
// that doesn't answer has no offset.
func watchClocks(ctx context.Context, parts *Parts, reg prometheus.Registerer) {
	offset := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_clock_offset_seconds",
		Help: "How far a store's clock is ahead of this process' own; less than 0: behind.",
	}, []string{"store"})
	clocks := map[string]func(context.Context) (time.Time, error){
		"redis":    func(ctx context.Context) (time.Time, error) { return parts.Redis.Time(ctx).Result() },
		"postgres": parts.Postgres.Clock,
	}
	tick := time.NewTicker(clocksEvery)
	defer tick.Stop()
	for {
		for store, read := range clocks {
			if ahead, err := clockOffset(ctx, read); err == nil {
				offset.WithLabelValues(store).Set(ahead.Seconds())
			} else {
				offset.DeleteLabelValues(store)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// clockOffset is how far a clock is ahead, if it was read in the middle of the call.
func clockOffset(ctx context.Context, read func(context.Context) (time.Time, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	sent := time.Now()
	at, err := read(ctx)
	return at.Sub(sent.Add(time.Since(sent) / 2)), err
}
