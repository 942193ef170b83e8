package waitlist

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/notification"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/sales"
)

const (
	// handOverEvery is how long a unit may remain free although somebody waits for it.
	handOverEvery = 500 * time.Millisecond
	// handOverTimeout bounds one call to Redis.
	handOverTimeout = 3 * time.Second
)

// HandOver hands free units over to the waitlist where no release did: what one call had to leave to the next, what a
// rebuild left free, what came free while the sale was paused, not open yet or not verified. Running twice at once
// hands over nothing twice.
type HandOver struct {
	rdb      redis.UniversalClient
	keys     pipeline.Keys
	notifier *notification.HandOverNotifier
}

// NewHandOver returns a HandOver.
func NewHandOver(rdb redis.UniversalClient, keys pipeline.Keys, notifier *notification.HandOverNotifier) *HandOver {
	return &HandOver{rdb: rdb, keys: keys, notifier: notifier}
}

// Job hands over the free units of every sale of a catalogue that has a waitlist.
func (h *HandOver) Job(catalogue *sales.Catalogue) pipeline.Job {
	return pipeline.Job{Name: "waitlist", Every: handOverEvery, Run: func(ctx context.Context) error {
		var errs []error
		now := time.Now()
		for _, sale := range catalogue.List(now, sales.CatalogueLimit) {
			if sale.Waitlist == 0 || sale.Phase(now) == "closed" {
				continue
			}
			for _, p := range sale.Partitions {
				errs = append(errs, h.run(ctx, sale.ID, p))
			}
		}
		return errors.Join(errs...)
	}}
}

func (h *HandOver) run(ctx context.Context, saleID string, p pipeline.Partition) error {
	for ctx.Err() == nil {
		due, err := h.due(ctx, saleID, p)
		if err != nil || !due {
			return err
		}
		step := pipeline.Uninterrupted(ctx)
		handed, err := h.call(step, saleID, p)
		if errors.Is(err, lua.ErrUntrusted) || errors.Is(err, lua.ErrNotLoaded) {
			return pipeline.Wrap(pipeline.KindNotLoaded, err, "units of sale "+saleID+" can't be handed over yet")
		}
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "hand units of sale "+saleID+" over")
		}
		h.notifier.Publish(step, saleID, p, handed)
		if !handed.More() {
			return nil
		}
	}
	return ctx.Err()
}

func (h *HandOver) call(ctx context.Context, saleID string, p pipeline.Partition) (lua.HandedOver, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	return lua.HandOver(ctx, h.rdb, h.keys.ForSale(p, saleID), saleID, pipeline.HandOverMaxLag)
}

// due spares Redis the script while nobody waits or nothing is free.
func (h *HandOver) due(ctx context.Context, saleID string, p pipeline.Partition) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	sale, err := redisstore.ReadSale(ctx, h.rdb, h.keys, pipeline.SalePartition{SaleID: saleID, Partition: p})
	if pipeline.KindOf(err) == pipeline.KindNotLoaded {
		return false, nil
	}
	return sale.Stock > 0 && sale.Waiting > 0, err
}
