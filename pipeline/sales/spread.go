package sales

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
)

// Bringer has a partition of a sale get units from the others.
type Bringer interface {
	// Bring reports false where all partitions together have not so many.
	Bring(ctx context.Context, sale *pipeline.Sale, home pipeline.Partition, units int) (bool, error)
}

// BringWith has reductions of sales on several partitions take units from wherever they are. Without it, each partition
// must have those of its own share.
func (p *Publisher) BringWith(b Bringer) *Publisher {
	p.bringer = b
	return p
}

// place chooses the partitions of a new sale. One on several is at home on as many masters as there are, and begins
// where it would lie alone.
func (p *Publisher) place(ctx context.Context, sale *pipeline.Sale) ([]pipeline.Partition, error) {
	first := pipeline.PlaceSale(cmp.Or(sale.LimitGroup, sale.ID), p.partitions)
	switch {
	case sale.Spread == 0 || sale.Spread == 1:
		return first, nil
	case sale.Waitlist > 0:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "a sale on several partitions can't have a waitlist: nobody would "+
			"see to its order across them")
	case sale.LimitGroup != "":
		return nil, pipeline.Errorf(pipeline.KindInvalid, "a sale on several partitions can't be in a limit group: the sales "+
			"of a group share one")
	case sale.Spread > p.partitions:
		return nil, pipeline.Errorf(pipeline.KindInvalid, "spread over %d partitions: this installation has %d",
			sale.Spread, p.partitions)
	}
	byMaster, masters := map[string][]pipeline.Partition{}, []string{}
	for i := range p.partitions {
		partition := (first[0] + pipeline.Partition(i)) % pipeline.Partition(p.partitions)
		master, err := p.masterOf(ctx, partition)
		if err != nil {
			return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say which master has which partition")
		}
		if byMaster[master] == nil {
			masters = append(masters, master)
		}
		byMaster[master] = append(byMaster[master], partition)
	}
	wanted := sale.Spread
	if wanted < 0 {
		wanted = len(masters)
	}
	placed := make([]pipeline.Partition, 0, wanted)
	for i := 0; len(placed) < wanted; i++ {
		master := masters[i%len(masters)]
		if own := byMaster[master]; len(own) > 0 {
			placed, byMaster[master] = append(placed, own[0]), own[1:]
		}
	}
	return placed, nil
}

// masterOf names the server that has a partition.
func (p *Publisher) masterOf(ctx context.Context, partition pipeline.Partition) (string, error) {
	cluster, ok := p.rdb.(*redis.ClusterClient)
	if !ok {
		return "", nil
	}
	master, err := cluster.MasterForKey(ctx, p.keys.Orders(partition))
	if err != nil {
		return "", err
	}
	return master.Options().Addr, nil
}
