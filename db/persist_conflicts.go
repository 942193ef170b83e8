package db

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// conflictsQuery reads back why events of a sale did not become rows: on conflict do nothing hides which constraint
// refused. Each lateral part is one lookup in one unique index (orders_pkey, orders_live_buyer_key, sales_pkey) and
// limit 1 keeps the planner from reading the whole table instead. No lock is taken.
const conflictsQuery = `
select i.index, own.partition, own.sequence, coalesce(own.live, false), s.id is not null, buyer.id is not null,
	coalesce(i.quantity > s.most, false), s.orders_dropped_at is not null
from unnest($2::text[], $3::text[], $4::bigint[])
	with ordinality as i (id, user_id, quantity, index)
left join lateral (
	select partition, sequence, status in ('awaiting_payment', 'confirmed', 'paid') as live
	from orders where sale_id = $1 and id = i.id::uuid limit 1
) own on true
left join lateral (
	select id, greatest(max_quantity, max_quantity_ever) as most, orders_dropped_at
	from sales where id = $1 limit 1
) s on true
left join lateral (
	select id from orders
	where sale_id = $1 and user_id = i.user_id and status in ('awaiting_payment', 'confirmed', 'paid')
	limit 1
) buyer on true`

// takenNumbersQuery finds out which order numbers are taken, in any sale. It relies on orders_number_key.
const takenNumbersQuery = `select number from orders where number = any($1::bigint[])`

// findConflicts sets the outcome of accepts that were not inserted, and the marks of their sales. It returns those that
// conflict with nothing any more: the other order was closed, or the sale was created, since the insert.
func (s *Store) findConflicts(
	ctx context.Context, missing []accept, r persistResult,
) ([]accept, error) {
	byIndex := make(map[int]*accept, len(missing))
	for i := range missing {
		byIndex[missing[i].index] = &missing[i]
	}
	var again []accept
	for _, columns := range columnsBySale(slices.Values(missing), len(missing)) {
		left, err := s.conflictsOf(ctx, columns, byIndex, r)
		if err != nil {
			return nil, wrap(err, "read orders back")
		}
		again = append(again, left...)
	}
	again, err := s.takenNumbers(ctx, again, r)
	if err == nil && len(again) < len(missing) { // the caller acknowledges those, and nothing was written
		err = s.confirm(ctx)
	}
	return again, wrap(err, "read orders back")
}

// conflictsOf is findConflicts for the accepts of one sale. What it returns may have a number that is taken.
func (s *Store) conflictsOf(
	ctx context.Context, columns *acceptColumns, byIndex map[int]*accept, r persistResult,
) ([]accept, error) {
	// Planned anew each time: it is rare, and a plan made while the table was small must not outlive that.
	rows, err := s.pool.Query(ctx, conflictsQuery, pgx.QueryExecModeCacheDescribe,
		columns.sale, columns.orders, columns.users, columns.quantities)
	if err != nil {
		return nil, err
	}
	var again []accept
	var index int
	var found conflicts
	_, err = pgx.ForEachRow(rows, found.into(&index), func() error {
		a := byIndex[columns.indexes[index-1]]
		if r.outcomes[a.index] = found.outcome(a); r.outcomes[a.index] == "" {
			again = append(again, *a)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return again, s.markStored(ctx, columns, r.marks)
}

// takenNumbers sets the outcome of accepts whose number is that of another order, and returns the others.
func (s *Store) takenNumbers(ctx context.Context, accepts []accept, r persistResult) ([]accept, error) {
	if len(accepts) == 0 {
		return nil, nil
	}
	numbers := make([]int64, len(accepts))
	for i := range accepts {
		numbers[i] = accepts[i].Number
	}
	taken, err := queryAll(ctx, s, "read orders back", pgx.RowTo[int64], takenNumbersQuery,
		pgx.QueryExecModeCacheDescribe, numbers)
	return slices.DeleteFunc(accepts, func(a accept) bool {
		found := slices.Contains(taken, a.Number)
		if found {
			r.outcomes[a.index] = pipeline.PersistNumberConflict
		}
		return found
	}), err
}

// conflicts are what keeps one accept from becoming a row.
type conflicts struct {
	ownPartition *int16 // of the order's own row; nil when there is none
	ownSequence  *int64
	ownLive      bool
	saleKnown    bool
	buyerLive    bool
	overLimit    bool
	dropped      bool // the sale's orders are, or are being
}

func (c *conflicts) into(index *int) []any {
	return []any{
		index, &c.ownPartition, &c.ownSequence, &c.ownLive, &c.saleKnown, &c.buyerLive, &c.overLimit, &c.dropped,
	}
}

func (c *conflicts) outcome(a *accept) pipeline.PersistOutcome {
	switch {
	// A live order has its units once, however often it was accepted: a second time only where Redis had lost its slot.
	case c.ownSequence != nil && (c.ownLive || a.same(pipeline.Partition(*c.ownPartition), *c.ownSequence)):
		return pipeline.PersistRedelivered
	case c.ownSequence != nil:
		return pipeline.PersistResubmitted
	case !c.saleKnown:
		return pipeline.PersistUnknownSale
	case c.dropped: // before any was dropped, each accept of the sale was settled: this one comes from an older Redis
		return pipeline.PersistRedelivered
	case c.overLimit:
		return pipeline.PersistOverLimit
	case c.buyerLive:
		return pipeline.PersistBuyerConflict
	default:
		return ""
	}
}
