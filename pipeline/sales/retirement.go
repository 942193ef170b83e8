package sales

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
)

const (
	// retireEvery is how late a sale may leave Redis.
	retireEvery = time.Minute
	// retireBatch bounds the sales of one transaction, and of one reading.
	retireBatch = 100
)

// RetirementStore is where sales are retired before Redis is cleared of them.
type RetirementStore interface {
	RetireSales(ctx context.Context, after time.Duration, limit int) ([]string, error)
	SalesToClear(ctx context.Context, g pipeline.Generation, limit int) ([]*pipeline.Sale, error)
	MarkCleared(ctx context.Context, id string, g pipeline.Generation) error
	Generation(ctx context.Context) (pipeline.Generation, error)
}

// Retirer removes sales from Redis that have been over for long. Postgres decides first: from then on no verification
// misses the sale, and its releases need no Redis. A process that dies between that and the removal leaves the rest to
// the next run. After each verification Redis is cleared again of all of them: what was verified may be an older state.
type Retirer struct {
	rdb   redis.UniversalClient
	keys  pipeline.Keys
	store RetirementStore
	after time.Duration
	log   *slog.Logger
}

// NewRetirer returns a Retirer of sales whose last order could be paid so long ago: at least a day; 0: it retires none,
// and clears Redis of those that are retired.
func NewRetirer(
	rdb redis.UniversalClient, keys pipeline.Keys, store RetirementStore, after time.Duration, log *slog.Logger,
) *Retirer {
	return &Retirer{rdb: rdb, keys: keys, store: store, after: after, log: log}
}

// Job retires sales as they become due.
func (r *Retirer) Job() pipeline.Job {
	return pipeline.Job{Name: "retire", Every: retireEvery, Run: func(ctx context.Context) error {
		return errors.Join(r.retire(ctx), r.clear(ctx))
	}}
}

func (r *Retirer) retire(ctx context.Context) error {
	if r.after == 0 {
		return nil
	}
	for ctx.Err() == nil {
		retired, err := r.store.RetireSales(ctx, r.after, retireBatch)
		if err != nil {
			return err
		}
		for _, id := range retired {
			r.log.Info("a sale that is over leaves Redis", "sale", id, "after", r.after)
		}
		if len(retired) < retireBatch {
			return nil
		}
	}
	return ctx.Err()
}

// clear removes what Redis has of retired sales. One that can't be removed keeps back no other, but all after it in
// this run if it fills a page with others of its kind.
func (r *Retirer) clear(ctx context.Context) error {
	generation, err := r.store.Generation(ctx) // before: a verification that begins from here on is not covered
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		page, err := r.store.SalesToClear(ctx, generation, retireBatch)
		if err != nil {
			return err
		}
		var failed []error
		for _, sale := range page {
			failed = append(failed, r.clearOne(ctx, sale, generation))
		}
		if err := errors.Join(failed...); err != nil || len(page) < retireBatch {
			return err
		}
	}
	return ctx.Err()
}

func (r *Retirer) clearOne(ctx context.Context, sale *pipeline.Sale, g pipeline.Generation) error {
	for _, partition := range sale.Partitions {
		call, cancel := context.WithTimeout(ctx, loadTimeout)
		gone, err := lua.Retire(call, r.rdb, r.keys.ForSale(partition, sale.ID), sale.Version, sale.LimitGroup)
		cancel()
		switch {
		case err != nil:
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not remove sale "+sale.ID)
		case !gone: // an operator sells it again, and Postgres knows
			return nil
		}
	}
	return r.store.MarkCleared(ctx, sale.ID, g)
}
