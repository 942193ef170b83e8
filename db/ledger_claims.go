package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

// claimsQuery reads the orders of the sales that a loss changed, by orders_pkey and releases_pkey. An order that was
// stored while nothing else was, is one that was stored again. Of orders that were there, those are named that still
// await their payment: they may be paid.
const claimsQuery = `
with loss as (
	select found_at, finished_at, array(select distinct d ->> 'sale_id' from jsonb_array_elements(detail) d) as sales
	from ledger_losses where id = $1 and finished_at is not null
), claims as (
	select o.sale_id, o.id, coalesce(o.number, 0) as number, o.user_id, o.status, case
		when exists (select from releases r where r.sale_id = o.sale_id and r.order_id = o.id
			and r.sequence = o.sequence and r.reason = 'ledger-loss') then 'ended'
		when exists (select from dead_letters d where d.partition = o.partition and d.entry_id = 'ledger:' || o.id)
			then 'refused'
		when o.persisted_at between l.found_at and l.finished_at then 'restored'
		when o.status = 'awaiting_payment' and o.persisted_at < l.found_at then 'unpaid' end as why
	from loss l
	join orders o on o.sale_id = any(l.sales)
)
select sale_id, id::text, number, user_id, status, why from claims where why is not null
order by sale_id, id`

// EachClaim calls each for every order about which somebody has to be asked after a loss that is over, sale by sale. An
// error of the callback ends it and is returned as it is. Errors: KindNotFound, where there is no such loss, or it is
// not over; KindUnavailable.
func (f forgotten) EachClaim(ctx context.Context, loss int64, each func(*recovery.Claim) error) error {
	return f.store.snapshot(ctx, "claims", func(ctx context.Context, tx pgx.Tx) error {
		var over bool
		err := tx.QueryRow(ctx, `select finished_at is not null from ledger_losses where id = $1`, loss).Scan(&over)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !over {
			return pipeline.Errorf(pipeline.KindNotFound, "there is no loss %d that is over", loss)
		}
		if err != nil {
			return err
		}
		var c recovery.Claim
		into := []any{&c.SaleID, &c.OrderID, &c.Number, &c.UserID, &c.Status, &c.Why}
		return stream(ctx, tx, into, func() error { return each(&c) }, claimsQuery, loss)
	})
}
