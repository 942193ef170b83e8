package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sluice/lua"
)

// handOverMaxLag is the backlog at which nothing more is handed over: units wait with the people until workers have caught up.
const handOverMaxLag = DefaultStreamMaxLag

// handing tells what a script handed over. The orders are accepts like any other: their events are in the stream.
type handing struct {
	news    *News
	metrics *Metrics // nil where nobody counts
	log     *slog.Logger
}

func (h handing) note(ctx context.Context, saleID string, p Partition, handed lua.HandedOver) {
	if h.metrics != nil {
		h.metrics.handedOver.Add(float64(len(handed.Orders)))
		h.metrics.waitlistDropped.Add(float64(len(handed.Dropped)))
	}
	if len(handed.Dropped) > 0 {
		h.log.Error("people were taken off the waitlist: Redis held them as buyers too, or nothing readable of them",
			"sale", saleID, "partition", p, "users", handed.Dropped)
	}
	if len(handed.Orders) == 0 {
		return
	}
	h.log.Info("units handed over to people who waited", "sale", saleID, "partition", p, "orders", len(handed.Orders))
	changed := make([]Changed, len(handed.Orders))
	for i, id := range handed.Orders {
		changed[i] = Changed{p, saleID, id}
	}
	h.news.Tell(ctx, changed)
}

// WaitlistJob hands over what no release did: what one call had to leave to the next, what a rebuild left free, what came
// free while the sale was paused, not open yet or not verified. Running twice at once hands over nothing twice.
func (r *Releaser) WaitlistJob(sales *Catalogue) Job {
	return Job{Name: "waitlist", Every: releaseEvery, Run: func(ctx context.Context) error {
		var errs []error
		now := time.Now()
		for _, sale := range sales.List(now, catalogueLimit) {
			if sale.Waitlist == 0 || sale.Phase(now) == "closed" {
				continue
			}
			for _, p := range sale.Partitions {
				errs = append(errs, r.handOver(ctx, sale.ID, p))
			}
		}
		return errors.Join(errs...)
	}}
}

func (r *Releaser) handOver(ctx context.Context, saleID string, p Partition) error {
	for ctx.Err() == nil {
		waits, err := r.mayHandOver(ctx, saleID, p)
		if err != nil || !waits {
			return err
		}
		step := begun(ctx)
		handed, err := r.handOverOnce(step, saleID, p)
		if errors.Is(err, lua.ErrUntrusted) || errors.Is(err, lua.ErrNotLoaded) {
			return Wrap(KindNotLoaded, err, "units of sale "+saleID+" can't be handed over yet")
		}
		if err != nil {
			return Wrap(KindUnavailable, err, "hand units of sale "+saleID+" over")
		}
		r.handing.note(step, saleID, p, handed)
		if !handed.More() {
			return nil
		}
	}
	return ctx.Err()
}

func (r *Releaser) handOverOnce(ctx context.Context, saleID string, p Partition) (lua.HandedOver, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return lua.HandOver(ctx, r.rdb, r.keys.release(p, saleID), saleID, handOverMaxLag)
}

// mayHandOver spares Redis the script while nobody waits or nothing is free.
func (r *Releaser) mayHandOver(ctx context.Context, saleID string, p Partition) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var held struct {
		Stock   int64 `redis:"stock"`
		Waiting int64 `redis:"waiting"`
	}
	read := r.rdb.HMGet(ctx, r.keys.Sale(p, saleID), "stock", "waiting")
	if err := errors.Join(read.Err(), read.Scan(&held)); err != nil {
		return false, Wrap(KindUnavailable, err, "Redis did not tell whether anybody waits for sale "+saleID)
	}
	return held.Stock > 0 && held.Waiting > 0, nil
}
