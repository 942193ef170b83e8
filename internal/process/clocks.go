package process

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	clocksEvery = time.Second
	// clockTimeout bounds one reading: half of what it takes is the error of the offset.
	clockTimeout = time.Second

	storeRedis = "redis"
)

// storeClock is a store's clock as far as it is known here: as it was measured last, and before that this process' own.
type storeClock struct{ ahead atomic.Int64 } // ns

func (c *storeClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// watchClocks measures how far the clocks of both stores are from this process' own, until the context ends, and sets
// that of Redis. A store that doesn't answer is not up and has no offset; its clock goes on as it was.
func watchClocks(ctx context.Context, parts *Parts, reg prometheus.Registerer, redis *storeClock) {
	offset := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_clock_offset_seconds",
		Help: "How far a store's clock is ahead of this process' own; less than 0: behind.",
	}, []string{"store"})
	up := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_store_up",
		Help: "Whether a store answered this process within a second when it was asked last: 1, or 0.",
	}, []string{"store"})
	clocks := map[string]func(context.Context) (time.Time, error){
		storeRedis: func(ctx context.Context) (time.Time, error) { return parts.Redis.Time(ctx).Result() },
		"postgres": parts.Postgres.Clock,
	}
	tick := time.NewTicker(clocksEvery)
	defer tick.Stop()
	for {
		for store, read := range clocks {
			if ahead, err := clockOffset(ctx, read); err == nil {
				offset.WithLabelValues(store).Set(ahead.Seconds())
				up.WithLabelValues(store).Set(1)
				if store == storeRedis {
					redis.ahead.Store(int64(ahead))
				}
			} else if ctx.Err() == nil {
				offset.DeleteLabelValues(store)
				up.WithLabelValues(store).Set(0)
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
