package audit

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// PartitionCounters are a sale's counters in Redis, by partition.
type PartitionCounters map[pipeline.Partition]redisstore.SaleCounters

// sum adds up what is counted on all partitions. Units on the move have left one, and not reached another: MovedOut is
// so much more than MovedIn.
func (c PartitionCounters) sum() redisstore.SaleCounters {
	var sum redisstore.SaleCounters
	for _, p := range c {
		sum.Stock += p.Stock
		sum.Total += p.Total
		sum.Accepted += p.Accepted
		sum.MovedIn += p.MovedIn
		sum.MovedOut += p.MovedOut
	}
	return sum
}

// onlyAccepts reports whether nothing but accepts happened between two readings.
func (c PartitionCounters) onlyAccepts(later PartitionCounters) bool {
	for p, was := range c {
		is := later[p]
		if is.Total != was.Total || is.Released != was.Released || is.Version != was.Version || is.Accepted < was.Accepted ||
			is.MovedIn != was.MovedIn || is.MovedOut != was.MovedOut || is.MovesSettled != was.MovesSettled {
			return false
		}
	}
	return true
}

// Counters reads a sale's counters on all of its partitions. Errors: KindNotLoaded, KindUnavailable.
func (a *Auditor) Counters(ctx context.Context, sale *pipeline.Sale) (PartitionCounters, error) {
	counters := make(PartitionCounters, len(sale.Partitions))
	for _, p := range sale.Partitions {
		c, err := redisstore.ReadSale(ctx, a.rdb, a.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p})
		if pipeline.KindOf(err) == pipeline.KindNotLoaded {
			return nil, pipeline.Errorf(pipeline.KindNotLoaded, "Redis does not hold sale %s on partition %s", sale.ID, p)
		}
		if err != nil {
			return nil, err
		}
		counters[p] = c
	}
	return counters, nil
}
