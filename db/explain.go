package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// explainQuery reads back why events did not become rows: on conflict do nothing hides which constraint spoke. Each
// lateral part is one look into one unique index (orders_pkey, orders_live_buyer_key, orders_number_key, sales_pkey) and
// limit 1 keeps the planner from reading the whole table instead. No lock is taken.
const explainQuery = `
select i.index, own.partition, own.sequence, coalesce(own.live, false), s.id is not null, buyer.id is not null, same.id is not null
from unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
	with ordinality as i (sale_id, id, number, user_id, index)
left join lateral (
	select partition, sequence, status in ('awaiting_payment', 'confirmed', 'paid') as live
	from orders where sale_id = i.sale_id and id = i.id::uuid limit 1
) own on true
left join lateral (select id from sales where id = i.sale_id limit 1) s on true
left join lateral (
	select id from orders
	where sale_id = i.sale_id and user_id = i.user_id and status in ('awaiting_payment', 'confirmed', 'paid')
	limit 1
) buyer on true
left join lateral (select id from orders where number = i.number limit 1) same on true`

// explainMissing notes the outcome of accepts that were not inserted. It returns those that nothing stands in the way of
// any more: the other order was closed, or the sale was created, since the insert.
func (s *Store) explainMissing(
	ctx context.Context, missing []accept, outcomes []pipeline.PersistOutcome,
) ([]accept, error) {
	columns := newAcceptColumns(len(missing))
	for _, a := range missing {
		columns.add(a)
	}
	// Planned anew each time: it is rare, and a plan made while the table was small must not outlive that.
	rows, err := s.pool.Query(ctx, explainQuery, pgx.QueryExecModeCacheDescribe,
		columns.sales, columns.orders, columns.numbers, columns.users)
	if err != nil {
		return nil, wrap(err, "read orders back")
	}
	var again []accept
	var index int
	var found obstacles
	_, err = pgx.ForEachRow(rows, found.into(&index), func() error {
		a := missing[index-1]
		if outcomes[a.index] = found.outcome(&a); outcomes[a.index] == "" {
			again = append(again, a)
		}
		return nil
	})
	return again, wrap(err, "read orders back")
}

// obstacles is what stands in the way of one accept.
type obstacles struct {
	ownPartition *int16 // of the order's own row; nil when there is none
	ownSequence  *int64
	ownLive      bool
	saleKnown    bool
	buyerLive    bool
	numberTaken  bool
}

func (o *obstacles) into(index *int) []any {
	return []any{index, &o.ownPartition, &o.ownSequence, &o.ownLive, &o.saleKnown, &o.buyerLive, &o.numberTaken}
}

func (o *obstacles) outcome(a *accept) pipeline.PersistOutcome {
	switch {
	// An order that stands holds its units once, however often it was admitted: again only where Redis had lost its slot.
	case o.ownSequence != nil && (o.ownLive || a.same(pipeline.Partition(*o.ownPartition), *o.ownSequence)):
		return pipeline.PersistRedelivered
	case o.ownSequence != nil:
		return pipeline.PersistReadmitted
	case !o.saleKnown:
		return pipeline.PersistUnknownSale
	case o.buyerLive:
		return pipeline.PersistBuyerConflict
	case o.numberTaken:
		return pipeline.PersistNumberConflict
	default:
		return ""
	}
}
