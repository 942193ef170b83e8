package sales

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

const (
	stockMaxAge  = 250 * time.Millisecond // how old a shown stock may be: a crowd's reloads cost 4 reads a second
	stockTimeout = time.Second            // one read
)

// StockReader reads the units left in a sale, for pages and listings. Orders never rely on it.
type StockReader struct {
	rdb   redis.UniversalClient
	keys  pipeline.Keys
	reads singleflight.Group // by sale: a crowd that finds the same reading too old reads once

	mu    sync.Mutex // protects known
	known map[string]stockReading
}

type stockReading struct {
	units int64
	until time.Time
}

// NewStockReader returns a reader that knows nothing yet.
func NewStockReader(rdb redis.UniversalClient, keys pipeline.Keys) *StockReader {
	return &StockReader{rdb: rdb, keys: keys, known: map[string]stockReading{}}
}

// Remaining returns the units left, at most stockMaxAge old. Errors: KindNotLoaded, KindUnavailable.
func (r *StockReader) Remaining(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	r.mu.Lock()
	reading, ok := r.known[sale.ID]
	r.mu.Unlock()
	if ok && time.Now().Before(reading.until) {
		return reading.units, nil
	}
	read := r.reads.DoChan(sale.ID, func() (any, error) {
		return r.refresh(context.WithoutCancel(ctx), sale) // detached: the answer serves everybody who waits for it
	})
	select {
	case got := <-read:
		return got.Val.(int64), got.Err
	case <-ctx.Done():
		return 0, pipeline.Wrap(pipeline.KindUnavailable, ctx.Err(), "Redis did not return the stock in time")
	}
}

// Fresh returns the units left at this moment, for an operator who has just changed them. Errors: KindNotLoaded,
// KindUnavailable.
func (r *StockReader) Fresh(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	return r.read(ctx, sale)
}

func (r *StockReader) refresh(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	began := time.Now()
	units, err := r.read(ctx, sale)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= CatalogueLimit {
		clear(r.known)
	}
	r.known[sale.ID] = stockReading{units, began.Add(stockMaxAge)}
	return units, nil
}

func (r *StockReader) read(ctx context.Context, sale *pipeline.Sale) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stockTimeout)
	defer cancel()
	var units int64
	for _, p := range sale.Partitions {
		published, err := redisstore.ReadSale(ctx, r.rdb, r.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p})
		if err != nil {
			return 0, err
		}
		units += published.Stock
	}
	return units, nil
}
