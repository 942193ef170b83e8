package erasure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	// eraseEvery is how long after a sale has left Redis a buyer may still be in it.
	eraseEvery = time.Minute
	// erasePage bounds the erasures of one reading.
	erasePage = 100
)

// Held reports whether Redis has a buyer's slot in a sale: of an accept, perhaps, that has no row yet. Errors:
// KindUnavailable, also while what Redis has is not known to be all.
type Held func(ctx context.Context, sale *pipeline.Sale, userID string) (bool, error)

// Store is where buyers are erased.
type Store interface {
	PendingErasures(ctx context.Context, after int64, limit int) ([]Erasure, error)
	Erase(ctx context.Context, id int64, held Held) (Erasure, error)
}

// Eraser carries erasures out. Each sale is one transaction, so a process may die between any two of them.
type Eraser struct {
	rdb   redis.UniversalClient
	keys  pipeline.Keys
	store Store
	log   *slog.Logger
}

// NewEraser returns an Eraser.
func NewEraser(rdb redis.UniversalClient, keys pipeline.Keys, store Store, log *slog.Logger) *Eraser {
	return &Eraser{rdb: rdb, keys: keys, store: store, log: log}
}

// Job erases each minute what Redis has left since. One erasure that fails keeps back no other.
func (e *Eraser) Job() pipeline.Job {
	return pipeline.Job{Name: "erase", Every: eraseEvery, Run: func(ctx context.Context) error {
		var failed []error
		for after := int64(0); ctx.Err() == nil; {
			page, err := e.store.PendingErasures(ctx, after, erasePage)
			if err != nil {
				return errors.Join(append(failed, err)...)
			}
			for i := range page {
				if ctx.Err() != nil {
					return errors.Join(failed...)
				}
				failed = append(failed, e.erase(ctx, page[i].ID))
			}
			if len(page) < erasePage {
				return errors.Join(failed...)
			}
			after = page[len(page)-1].ID
		}
		return errors.Join(failed...)
	}}
}

func (e *Eraser) erase(ctx context.Context, id int64) error {
	done, err := e.store.Erase(pipeline.Uninterrupted(ctx), id, e.held)
	if err == nil && !done.FinishedAt.IsZero() {
		e.log.Info("a buyer is erased", "erasure", id, "rows", done.Rows)
	}
	return err
}

// held looks once Redis is known to have all that it should: workers free a slot only after its order has a row.
func (e *Eraser) held(ctx context.Context, sale *pipeline.Sale, userID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	at := pipeline.SalePartition{SaleID: sale.ID, Partition: sale.PartitionOf(userID)}
	if err := redisstore.RequireVerified(ctx, e.rdb, e.keys, at, "who has a slot"); err != nil {
		return false, err
	}
	_, err := redisstore.ReadSlot(ctx, e.rdb, e.keys, at, userID)
	if pipeline.KindOf(err) == pipeline.KindNotFound {
		return false, nil
	}
	return err == nil, err
}
