package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// maxGroupSales bounds the sales of a limit group: each order in one of them looks at the buyer's slots in all others.
const maxGroupSales = 32

// limitGroup is what holds for all sales of a group.
type limitGroup struct {
	limit      int
	partitions []int16
	sales      int // so far, without the one that is created
}

// joinLimitGroup places a new sale beside the others of its limit group, so that one script sees a buyer's slots in all
// of them. The first sale of a group says what holds for the group, and of two at once the one that is stored first.
// Errors: KindConflict, where the group has another limit or is full.
func (s *Store) joinLimitGroup(ctx context.Context, sale *pipeline.Sale) error {
	if sale.LimitGroup == "" {
		return nil
	}
	ctx, cancel := deadline(ctx, callTimeout) // for all statements
	defer cancel()
	_, err := s.exec(ctx, "limit group "+sale.LimitGroup,
		`insert into limit_groups (id, group_limit, partitions) values ($1, $2, $3) on conflict (id) do nothing`,
		sale.LimitGroup, sale.GroupLimit, smallints(sale.Partitions))
	if err != nil {
		return err
	}
	group, err := queryOne(ctx, s, "limit group "+sale.LimitGroup, func(row pgx.CollectableRow) (g limitGroup, err error) {
		return g, row.Scan(&g.limit, &g.partitions)
	}, `select group_limit, partitions from limit_groups where id = $1`, sale.LimitGroup)
	if err == nil {
		group.sales, err = queryValue[int](ctx, s, "limit group "+sale.LimitGroup,
			`select count(*) from sales where limit_group = $1 and id <> $2`, sale.LimitGroup, sale.ID)
	}
	switch {
	case err != nil:
		return err
	case group.limit != sale.GroupLimit:
		return pipeline.Errorf(pipeline.KindConflict, "limit group %s allows %d units per buyer, not %d: use its limit, "+
			"or another group", sale.LimitGroup, group.limit, sale.GroupLimit)
	case group.sales >= maxGroupSales:
		return pipeline.Errorf(pipeline.KindConflict, "limit group %s has %d sales, and no more are allowed",
			sale.LimitGroup, group.sales)
	}
	sale.Partitions = partitionsOf(group.partitions)
	return nil
}
