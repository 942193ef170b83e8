package db

import (
	"context"

	"sluice/pipeline"
)

// maxGroupSales bounds the sales of a limit group: each order in one of them looks at the buyer's slots in all others.
const maxGroupSales = 32

// joinLimitGroup places a new sale beside the others of its limit group, so that one script sees a buyer's slots in all
// of them. Errors: KindConflict, where the group has another limit or is full.
func (s *Store) joinLimitGroup(ctx context.Context, sale *pipeline.Sale) error {
	if sale.LimitGroup == "" {
		return nil
	}
	const query = `select partitions, group_limit from sales where limit_group = $1 and id <> $2 order by created_at, id`
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, sale.LimitGroup, sale.ID)
	if err != nil {
		return wrap(err, "limit group "+sale.LimitGroup)
	}
	defer rows.Close()
	others := 0
	for ; rows.Next(); others++ {
		var partitions []int16
		var limit int
		if err := rows.Scan(&partitions, &limit); err != nil {
			return wrap(err, "limit group "+sale.LimitGroup)
		}
		if limit != sale.GroupLimit {
			return pipeline.Errorf(pipeline.KindConflict, "limit group %s allows %d units per buyer, not %d: use its limit, "+
				"or another group", sale.LimitGroup, limit, sale.GroupLimit)
		}
		sale.Partitions = sale.Partitions[:0:0]
		for _, p := range partitions {
			sale.Partitions = append(sale.Partitions, pipeline.Partition(p))
		}
	}
	if err := rows.Err(); err != nil {
		return wrap(err, "limit group "+sale.LimitGroup)
	}
	if others >= maxGroupSales {
		return pipeline.Errorf(pipeline.KindConflict, "limit group %s has %d sales, and no more are allowed",
			sale.LimitGroup, others)
	}
	return nil
}
