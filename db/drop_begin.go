package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/retention"
)

// salesToDropQuery takes the sales that left Redis so long ago, the oldest first. sales has few rows.
const salesToDropQuery = `
select ` + saleColumns + ` from sales s
where s.retired_at <= now() - $1::interval and s.cleared_in is not null and not exists (
	select from sale_drops d where d.sale_id = s.id and (d.finished_at is not null
		or d.held <> '' and d.looked_at between now() - $2::interval and now())
)
order by s.retired_at, s.id
limit $3`

// SalesToDrop returns up to limit sales that left Redis so long ago and of which anything is left to drop. Those that
// were held back since lookAgain are left out.
func (s *Store) SalesToDrop(
	ctx context.Context, after, lookAgain time.Duration, limit int,
) ([]*pipeline.Sale, error) {
	return queryAll(ctx, s, "sales to drop", func(row pgx.CollectableRow) (*pipeline.Sale, error) {
		sale, err := scanSale(row)
		return &sale, err
	}, salesToDropQuery, after, lookAgain, limit)
}

// dropHoldsQuery reads all orders of a sale. payments_due_idx, dead_letters_unresolved_idx and releases_unapplied_idx
// serve the rest, and are as small as the work that is left.
const dropHoldsQuery = `
select count(*) filter (where o.status = 'awaiting_payment'),
	count(*) filter (where o.status in ('refund_due', 'returned')),
	(select count(*) from payments where sale_id = $1 and outcome in ('waiting', 'refund_due')),
	(select count(*) from dead_letters where sale_id = $1 and resolved_at is null),
	(select count(*) from releases where sale_id = $1 and applied_at is null),
	(select reduce_to is not null from sales where id = $1)
from orders o where o.sale_id = $1`

// DropHolds counts what somebody still has to do about a sale. It reads all of the sale's orders, under a second for a
// million; no lock is taken. Errors: KindUnavailable.
func (s *Store) DropHolds(ctx context.Context, saleID string) (h retention.Holds, err error) {
	err = s.snapshot(ctx, "what sale "+saleID+" owes", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, dropHoldsQuery, saleID).
			Scan(&h.Unpaid, &h.RefundsDue, &h.PaymentsDue, &h.Letters, &h.Releases, &h.StockReducing)
	})
	return h, err
}

// HoldDrop notes why the orders of a sale are kept.
func (s *Store) HoldDrop(ctx context.Context, saleID, why string) error {
	_, err := s.exec(ctx, "hold back sale "+saleID, `
		insert into sale_drops as d (sale_id, held) values ($1, $2)
		on conflict on constraint sale_drops_pkey do update set held = excluded.held, looked_at = excluded.looked_at
		where d.finished_at is null`, saleID, why)
	return err
}

const (
	// beginDropQuery takes a sale out of everything that could add to it: from then on it is dropped, or nothing happens.
	beginDropQuery = `
with begun as (
	update sales s set orders_dropped_at = now(), updated_at = now()
	where s.id = $1 and s.retired_at <= now() - $2::interval and s.reduce_to is null and s.orders_dropped_at is null
	returning s.id
), noted as (
	insert into sale_drops (sale_id) select id from begun
	on conflict on constraint sale_drops_pkey do update set held = '', looked_at = excluded.looked_at
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select '` + defaultActor + `', 'drop-orders', id,
		jsonb_build_object('after_seconds', extract(epoch from $2::interval)::bigint)
	from begun
)
select id from begun`

	// beginAcceptsQuery notes which accepts have no order, and may have none: what explains them is dropped, too.
	beginAcceptsQuery = `
insert into dropped_accepts (sale_id, partition, missing)
select $1::text, c.partition, greatest(0, least(c.missing, c.explained))
from (` + closedSequencesQuery + `) c (partition, missing, explained, twice, beyond)`
)

// BeginDrop says that the orders of a sale which left Redis so long ago are dropped from now on, and writes a line into
// the audit log. Its books must have been proved since it left Redis. It returns false where that has begun before, or
// the sale is to be sold again. It reads all of the sale's orders.
func (s *Store) BeginDrop(ctx context.Context, saleID string, after time.Duration) (begun bool, err error) {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	err = s.transaction(ctx, func(tx pgx.Tx) error {
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		var id string
		begun = false
		err := tx.QueryRow(ctx, beginDropQuery, saleID, after).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, beginAcceptsQuery, saleID)
		begun = true
		return err
	})
	return begun && err == nil, wrap(err, "begin to drop sale "+saleID)
}
