package moves

import (
	"context"

	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// reading is what the partitions of a sale had, each at an instant of its own.
type reading []partitionReading // by Sale.Partitions

type partitionReading struct {
	stock    int64 // less than 0 where more is sold than there is
	waiting  int64 // entries on the waitlist
	growth   growth
	movedOut int64
}

// growth changes whenever the stock of a partition grows.
type growth struct{ generation, version, released, tickets, movedIn int64 }

// read reads all partitions of a sale. Errors: KindNotLoaded, where one of them is not verified or lacks the sale: what
// it has is not known then.
func (m *Mover) read(ctx context.Context, sale *pipeline.Sale) (reading, error) {
	all := make(reading, len(sale.Partitions))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range sale.Partitions {
		group.Go(func() (err error) {
			all[i], err = m.readPartition(ctx, sale.ID, p)
			return err
		})
	}
	return all, group.Wait()
}

func (m *Mover) readPartition(ctx context.Context, saleID string, p pipeline.Partition) (partitionReading, error) {
	generation, err := m.Fence.Current(p)
	if err != nil {
		return partitionReading{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	read, err := lua.ReadRefusals(ctx, m.Redis, lua.RefusalKeys{
		Trusted: m.Keys.Trusted(p), Generation: m.Keys.Generation(p), Fence: int64(generation),
		Sales: []string{m.Keys.Sale(p, saleID)},
	})
	switch {
	case err != nil:
		return partitionReading{}, retry.Unavailable(err)
	case !read.Known || read.Sales[0].State == "":
		return partitionReading{}, pipeline.Errorf(pipeline.KindNotLoaded,
			"partition %s is not verified: what it has of sale %s is not known", p, saleID)
	}
	s := read.Sales[0]
	return partitionReading{
		stock: s.Stock, waiting: s.Waiting, movedOut: s.MovedOut,
		growth: growth{read.Generation, s.Version, s.Released, s.Tickets, s.MovedIn},
	}, nil
}

// free are the units of all partitions together.
func (r reading) free() (units int64) {
	for _, p := range r {
		units += p.stock
	}
	return units
}

// settled reports whether nothing was on its way between two partitions, and no stock has grown, at an instant between
// this reading and the next one, which began when this one had ended. There were at most so many units free then as
// this one has. A reading alone proves nothing: a unit that moves can be missed by looking at one partition after the
// other.
func (r reading) settled(next reading) bool {
	var in, out int64
	for i, p := range r {
		if p.growth != next[i].growth || p.movedOut != next[i].movedOut {
			return false
		}
		in, out = in+p.growth.movedIn, out+p.movedOut
	}
	return in == out
}

// richest is the partition with the most units, other than one.
func (r reading) richest(but int) int {
	most := -1
	for i, p := range r {
		if i != but && p.stock > 0 && p.waiting == 0 && (most < 0 || p.stock > r[most].stock) {
			most = i
		}
	}
	return most
}
