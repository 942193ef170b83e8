package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/audit"
)

const (
	closedSaleQuery = `
select ` + isOver + `, s.withdrawn,
	(select coalesce(sum(quantity), 0) from releases where sale_id = s.id and withdrawn)
		+ (select coalesce(sum(withdrawn), 0) from dropped_accepts where sale_id = s.id)::bigint
from sales s where s.id = $1`

	// closedOrdersQuery reads all of a sale's orders. The numbers of changes are the fewest that lead to each status, see
	// pipeline.Transitions: the first status counts, and every change of it does.
	closedOrdersQuery = `
select count(o.number) - count(distinct o.number),
	count(*) filter (where o.status in ('awaiting_payment', 'confirmed', 'paid'))
		- count(distinct o.user_id) filter (where o.status in ('awaiting_payment', 'confirmed', 'paid')),
	count(*) filter (where o.partition <> all (s.partitions)),
	count(*) filter (where o.version < case
		when o.status in ('awaiting_payment', 'confirmed', 'rejected') then 1
		when o.status in ('paid', 'cancelled', 'expired', 'refund_due') then 2
		else 3 end)
from sales s join orders o on o.sale_id = s.id
where s.id = $1
group by s.id`

	// closedSequencesQuery counts, of each partition of a sale, the sequences up to the watermark that nothing has. A
	// second accept of an order that had ended is its second release. A letter whose sequence nothing has may be one of
	// those that are missing; so may one whose sale can't be read, or is none, if it was written after the sale was made,
	// and its entry before the sale was over (entry ids are clock times of Redis, unless a forged one has pushed them into
	// the future: the letter's own time bounds those). What Redis had lost and nobody submitted again in time was rejected
	// under its old sequence, which another accept may have got since. What was dropped is in the sums.
	closedSequencesQuery = `
with seen as materialized (
	select partition, sequence, count(*) filter (where placed) as rows
	from (
		select partition, sequence, reason <> 'redis-lost' as placed from orders where sale_id = $1
		union all
		select partition, sequence, false from releases where sale_id = $1
	) accepts
	group by partition, sequence
), strange as materialized ( -- letters of no sale that there is, on whatever node they are
	select l.partition, l.created_at, l.entry_id, l.payload ->> 'k' as sequence
	from dead_letters l left join sales s on s.id = l.sale_id
	where s.id is null
), letters as (
	select partition, null::timestamptz as created_at, null::text as entry_id, payload ->> 'k' as sequence
	from dead_letters where sale_id = $1
	union all
	select partition, created_at, entry_id, sequence from strange
), places as (
	select p.partition, s.created_at, s.closes_at + s.payment_window + interval '24 hours' as over_at,
		coalesce(w.seq, 0) as seq, coalesce(w.lost, 0) as lost, d.missing,
		coalesce(d.sequences, '{}') as dropped, coalesce(d.sequences + d.elsewhere, '{}') as had
	from sales s
	cross join lateral unnest(s.partitions) as p (partition)
	left join watermarks w on w.sale_id = s.id and w.partition = p.partition
	left join dropped_accepts d on d.sale_id = s.id and d.partition = p.partition
	where s.id = $1
)
select p.partition,
	p.seq - count(*) filter (where s.sequence <= p.seq and not p.had @> s.sequence) - (
		select coalesce(sum(upper(r) - lower(r)), 0)
		from unnest(p.had * int8multirange(int8range(1, p.seq + 1))) as r
	)::bigint,
	coalesce(p.missing, p.lost + (
		select count(*) from letters l
		where l.partition = p.partition and (l.created_at is null or l.created_at >= p.created_at
			and least(l.created_at, to_timestamp(substring(l.entry_id from '^[0-9]{1,15}(?=-)')::bigint / 1000)) <= p.over_at
		) and not exists (
			select from seen x where x.partition = l.partition and x.sequence::text = l.sequence
		)
	)),
	coalesce(sum(s.rows - 1 + (p.dropped @> s.sequence)::integer) filter (where s.rows > 0), 0)::bigint,
	coalesce(sum(s.rows) filter (where s.sequence > p.seq), 0)::bigint + (
		select coalesce(sum(upper(r) - lower(r)), 0)
		from unnest(p.dropped * int8multirange(int8range(p.seq, null, '()'))) as r
	)::bigint
from places p
left join seen s on s.partition = p.partition
group by p.partition, p.created_at, p.over_at, p.seq, p.lost, p.missing, p.dropped, p.had
order by p.partition`

	// droppedQuery compares the sums of what was dropped with each other. An order that has ended gave its units back.
	droppedQuery = `
select coalesce(sum(abs(s.placed - (
		select coalesce(sum(upper(r) - lower(r)), 0) from unnest(a.sequences) as r
	))), 0)::bigint, coalesce(sum(abs(s.ended - a.released)), 0)::bigint, abs((
		select coalesce(sum(orders), 0) from dropped_orders where sale_id = $1 and status = 'paid'
	) - (
		select coalesce(sum(payments), 0) from dropped_payments where sale_id = $1 and outcome = 'paid'
	))::bigint
from dropped_accepts a
cross join lateral (
	select coalesce(sum(orders) filter (where reason <> 'redis-lost'), 0) as placed,
		coalesce(sum(units) filter (where status not in ('confirmed', 'paid')), 0) as ended
	from dropped_orders where sale_id = $1 and partition = a.partition
) s
where a.sale_id = $1`

	// closedReleasesQuery compares each order with the release of its own accept. It relies on releases_pkey.
	closedReleasesQuery = `
select count(*) filter (where o.status in ('awaiting_payment', 'confirmed', 'paid') and r.order_id is not null),
	count(*) filter (where o.status not in ('awaiting_payment', 'confirmed', 'paid') and r.order_id is null),
	count(*) filter (where (r.quantity, r.user_id, r.partition) <> (o.quantity, o.user_id, o.partition)),
	(select count(*) from releases x where x.sale_id = $1 and not exists (
		select from orders y where y.sale_id = x.sale_id and y.id = x.order_id
	))
from orders o
left join releases r on r.sale_id = o.sale_id and r.order_id = o.id and r.sequence = o.sequence
where o.sale_id = $1`

	// closedPaymentsQuery relies on payments_order_idx.
	closedPaymentsQuery = `
select count(*) filter (where not exists (
		select from payments p where p.order_id = o.id and p.sale_id = o.sale_id and p.outcome = case o.status
			when 'paid' then 'paid' when 'refunded' then 'refunded' else 'refund_due' end
	)),
	count(*) filter (where o.payment_id is not null and not exists (
		select from payments p where p.order_id = o.id and p.sale_id = o.sale_id and p.payment_id = o.payment_id
	))
from orders o
where o.sale_id = $1 and o.status in ('paid', 'returned', 'refund_due', 'refunded')`
)

// ClosedBooks reads what Postgres alone says of a sale, all of it from one snapshot. It reads all of the sale's orders
// and releases, some seconds for a million; no lock is taken, and writers do not wait. Errors: KindNotFound,
// KindUnavailable.
func (s *Store) ClosedBooks(ctx context.Context, saleID string) (audit.ClosedBooks, error) {
	if !pipeline.ValidSaleID(saleID) {
		return audit.ClosedBooks{}, unknownSale(saleID)
	}
	var b audit.ClosedBooks
	err := s.snapshot(ctx, "closed books of sale "+saleID, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, closedSaleQuery, saleID).Scan(&b.Over, &b.Withdrawn, &b.WithdrawnReleases)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return unknownSale(saleID)
		case err != nil || !b.Over: // then the rest proves nothing
			return err
		}
		r := ledgerReader{tx: tx, saleID: saleID, ledger: &b.Ledger}
		if err := r.numbers(ctx); err != nil {
			return err
		}
		return closedBooks(ctx, tx, saleID, &b)
	})
	return b, err
}

// closedBooks reads what the ledger does not have.
func closedBooks(ctx context.Context, tx pgx.Tx, saleID string, b *audit.ClosedBooks) error {
	for query, into := range map[string][]any{
		closedOrdersQuery:   {&b.NumbersTwice, &b.BuyersTwice, &b.Misplaced, &b.Jumped},
		closedReleasesQuery: {&b.LiveReleased, &b.NeverReleased, &b.OtherReleases, &b.OrphanedReleases},
		closedPaymentsQuery: {&b.WithoutPayment, &b.PaymentsElsewhere},
		droppedQuery:        {&b.DroppedOrders, &b.DroppedUnits, &b.DroppedPayments},
	} {
		err := tx.QueryRow(ctx, query, saleID).Scan(into...)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) { // a sale without orders
			return err
		}
	}
	rows, err := tx.Query(ctx, closedSequencesQuery, saleID)
	if err != nil {
		return err
	}
	b.Sequences, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (audit.Sequences, error) {
		var s audit.Sequences
		err := row.Scan(&s.Partition, &s.Missing, &s.Explained, &s.Twice, &s.Beyond)
		return s, err
	})
	return err
}
