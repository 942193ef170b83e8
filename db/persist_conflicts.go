package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// conflictsQuery reads back why events did not become rows: on conflict do nothing hides which constraint refused. Each
// lateral part is one lookup in one unique index (orders_pkey, orders_live_buyer_key, orders_number_key, sales_pkey)
// and limit 1 keeps the planner from reading the whole table instead. No lock is taken.
const conflictsQuery = `
select i.index, own.partition, own.sequence, coalesce(own.live, false), s.id is not null, buyer.id is not null,
	same.id is not null, coalesce(i.quantity > s.most, false), s.orders_dropped_at is not null
from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
	with ordinality as i (sale_id, id, number, user_id, quantity, index)
left join lateral (
	select partition, sequence, status in ('awaiting_payment', 'confirmed', 'paid') as live
	from orders where sale_id = i.sale_id and id = i.id::uuid limit 1
) own on true
left join lateral (
	select id, greatest(max_quantity, max_quantity_ever) as most, orders_dropped_at
	from sales where id = i.sale_id limit 1
) s on true
left join lateral (
	select id from orders
	where sale_id = i.sale_id and user_id = i.user_id and status in ('awaiting_payment', 'confirmed', 'paid')
	limit 1
) buyer on true
left join lateral (select id from orders where number = i.number limit 1) same on true`

// findConflicts sets the outcome of accepts that were not inserted, and the marks of their sales. It returns those that
// conflict with nothing any more: the other order was closed, or the sale was created, since the insert.
func (s *Store) findConflicts(
	ctx context.Context, missing []accept, r persistResult,
) ([]accept, error) {
	columns := newAcceptColumns(len(missing))
	for _, a := range missing {
		columns.add(a)
	}
	// Planned anew each time: it is rare, and a plan made while the table was small must not outlive that.
	rows, err := s.pool.Query(ctx, conflictsQuery, pgx.QueryExecModeCacheDescribe,
		columns.sales, columns.orders, columns.numbers, columns.users, columns.quantities)
	if err != nil {
		return nil, wrap(err, "read orders back")
	}
	var again []accept
	var index int
	var found conflicts
	_, err = pgx.ForEachRow(rows, found.into(&index), func() error {
		a := missing[index-1]
		if r.outcomes[a.index] = found.outcome(&a); r.outcomes[a.index] == "" {
			again = append(again, a)
		}
		return nil
	})
	if err == nil {
		err = s.markStored(ctx, missing, r.marks)
	}
	if err == nil && len(again) < len(missing) { // the caller acknowledges those, and nothing was written
		err = s.confirm(ctx)
	}
	return again, wrap(err, "read orders back")
}

// conflicts are what keeps one accept from becoming a row.
type conflicts struct {
	ownPartition *int16 // of the order's own row; nil when there is none
	ownSequence  *int64
	ownLive      bool
	saleKnown    bool
	buyerLive    bool
	numberTaken  bool
	overLimit    bool
	dropped      bool // the sale's orders are, or are being
}

func (c *conflicts) into(index *int) []any {
	return []any{
		index, &c.ownPartition, &c.ownSequence, &c.ownLive, &c.saleKnown, &c.buyerLive, &c.numberTaken, &c.overLimit,
		&c.dropped,
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
	case c.numberTaken:
		return pipeline.PersistNumberConflict
	default:
		return ""
	}
}
