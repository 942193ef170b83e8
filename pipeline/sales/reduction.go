package sales

import (
	"context"
	"time"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// bringTries bounds how often units are brought to one partition for a reduction: buyers may be faster.
const bringTries = 5

// reductionTries bounds how often Redis is asked about one reduction: once more after each verification meanwhile.
const reductionTries = 3

// ReductionStore is where a reduction is noted before Redis is asked, and ended when it has answered.
type ReductionStore interface {
	BeginReduction(ctx context.Context, id, actor string, to int64) (*pipeline.Sale, error)
	EndReduction(
		ctx context.Context, asked *pipeline.Sale, g pipeline.Generation, done bool,
	) (*pipeline.Sale, error)
	Generation(ctx context.Context) (pipeline.Generation, error)
}

// Reduce takes units out of a sale that nobody has: its total becomes what is given, and never less than what is taken.
// Redis decides, in one step with the orders that take units, and Postgres follows. Repeating it changes nothing, and a
// worker ends what a process began that died. Errors: KindInvalid, KindNotFound; KindConflict (more is taken, the sale
// is closed, or another reduction is under way); KindNotLoaded (Redis does not have the sale, or is not verified);
// KindUnavailable. After the last two the reduction may be under way, and ends as soon as a worker can.
func (p *Publisher) Reduce(ctx context.Context, id, actor string, to int64) (*pipeline.Sale, error) {
	// Redis need not have a sale that is over for so long, and then nothing could end the reduction.
	if known, err := p.store.Sale(ctx, id); err == nil && known.Total != to && mayBeGone(known, time.Now()) {
		return known, pipeline.Errorf(pipeline.KindConflict, "sale %s is over", id)
	}
	sale, err := p.store.BeginReduction(ctx, id, actor, to)
	if err != nil || sale.ReduceTo == 0 {
		return sale, err
	}
	sale, err = p.endReduction(ctx, sale)
	if err != nil {
		return sale, pipeline.Wrap(pipeline.KindOf(err), err, "the reduction is noted, and not done yet; a worker ends it")
	}
	if sale.Total > to {
		return sale, p.tooManyTaken(ctx, sale, to)
	}
	return sale, nil
}

// endReduction asks Redis for the units of a reduction that is under way, and notes what it said. It returns the sale
// after it, with the total that it has then.
func (p *Publisher) endReduction(ctx context.Context, sale *pipeline.Sale) (*pipeline.Sale, error) {
	if _, err := p.store.BeginPublish(ctx, sale.ID); err != nil {
		return sale, err
	}
	for range reductionTries {
		// Before Redis is asked: a verification that begins from here on may rebuild what it is asked for.
		generation, err := p.store.Generation(ctx)
		if err != nil {
			return sale, err
		}
		done, err := p.takeOut(ctx, sale)
		if err != nil {
			return sale, err
		}
		if sale, err = p.store.EndReduction(ctx, sale, generation, done); err != nil {
			return sale, err
		}
		if sale.ReduceTo == 0 {
			return sale, p.Publish(ctx, sale)
		}
	}
	return sale, pipeline.Errorf(pipeline.KindUnavailable, "Redis is being verified again and again")
}

// takeOut has each partition follow the reduction, under the version that the sale is to get. It reports whether all
// did. Those that have already say so again.
func (p *Publisher) takeOut(ctx context.Context, sale *pipeline.Sale) (bool, error) {
	wanted := *sale
	wanted.Total, wanted.Version = sale.ReduceTo, sale.Version+1
	for _, partition := range sale.Partitions {
		fields := SaleFields(&wanted, partition, 0)
		result, err := p.adjust(ctx, &wanted, partition, fields)
		for range bringTries {
			if err != nil || result != lua.AdjustBelowTaken {
				break
			}
			brought, failed := p.bring(ctx, sale, partition, sale.ShareOf(partition, sale.Total)-fields.Total)
			if failed != nil {
				return false, failed
			}
			if !brought {
				return false, nil
			}
			result, err = p.adjust(ctx, &wanted, partition, fields)
		}
		switch {
		case err != nil:
			return false, err
		case result == lua.AdjustBelowTaken:
			return false, nil
		}
	}
	return true, nil
}

// bring has a partition get the units that a reduction takes out of it, if others have them.
func (p *Publisher) bring(
	ctx context.Context, sale *pipeline.Sale, partition pipeline.Partition, units int64,
) (bool, error) {
	if p.bringer == nil || len(sale.Partitions) == 1 {
		return false, nil
	}
	return p.bringer.Bring(ctx, sale, partition, int(units))
}

func (p *Publisher) tooManyTaken(ctx context.Context, sale *pipeline.Sale, to int64) error {
	var least int64
	for _, partition := range sale.Partitions {
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: partition}
		c, err := redisstore.ReadSale(ctx, p.rdb, p.keys, at)
		if err != nil {
			return pipeline.Errorf(pipeline.KindConflict, "more than %d units of sale %s are taken", to, sale.ID)
		}
		least += c.Total - c.Stock
	}
	return pipeline.Errorf(pipeline.KindConflict, "%d units of sale %s are taken: its stock can't be reduced to %d",
		least, sale.ID, to)
}
