package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/retention"
)

const (
	// dropTurnQuery lets the batches of a sale pass one by one.
	dropTurnQuery = `
select d.batches from sale_drops d
where d.sale_id = $1 and d.finished_at is null
	and exists (select 1 from sales s where s.id = d.sale_id and s.orders_dropped_at is not null)
for no key update of d`

	// ordersToDropQuery relies on orders_pkey and payments_due_idx. What money is still due for is passed over, and so
	// is what changes at this moment: both come again.
	ordersToDropQuery = `
select ` + orderColumns + `, coalesce(p.unit_price, 0), coalesce(p.currency, '')
from (
	select o.* from orders o
	where o.sale_id = $1 and o.status not in ('awaiting_payment', 'refund_due', 'returned') and coalesce((
		select false from payments p
		where p.order_id = o.id and p.sale_id = $1 and p.outcome in ('waiting', 'refund_due') limit 1
	), true)
	order by o.id limit $2
	for update skip locked
) o
cross join lateral (select row(s.*)::sales as sale from sales s where s.id = o.sale_id) s
cross join lateral order_price(s.sale, o.id) p
order by o.id`

	// dropOrdersQuery drops orders with their releases, and adds them to the sums: of orders, and of accepts.
	dropOrdersQuery = `
with dropped as (
	delete from orders where sale_id = $1 and id = any($2::text[]::uuid[]) returning *
), released as (
	delete from releases where sale_id = $1 and order_id = any($2::text[]::uuid[]) returning *
), counted as (
	insert into dropped_orders as d (sale_id, partition, status, reason, currency, orders, units, amount)
	select $1::text, o.partition, o.status, o.reason, coalesce(p.currency, ''), count(*), sum(o.quantity),
		coalesce(sum(p.unit_price * o.quantity), 0)
	from dropped o
	cross join lateral (select row(s.*)::sales as sale from sales s where s.id = $1) s
	cross join lateral order_price(s.sale, o.id) p
	group by o.partition, o.status, o.reason, coalesce(p.currency, '')
	on conflict on constraint dropped_orders_pkey do update
	set orders = d.orders + excluded.orders, units = d.units + excluded.units, amount = d.amount + excluded.amount
), accepts as (
	select partition, sequence, reason <> 'redis-lost' as placed, 0 as released, 0 as withdrawn from dropped
	union all
	select r.partition, r.sequence, false,
		case when exists (select from dropped o where o.id = r.order_id and o.sequence = r.sequence)
			then r.quantity else 0 end,
		case when r.withdrawn then r.quantity else 0 end
	from released r
), summed as (
	insert into dropped_accepts as d (sale_id, partition, sequences, elsewhere, missing, released, withdrawn)
	select $1::text, a.partition,
		coalesce(range_agg(int8range(a.sequence, a.sequence, '[]')) filter (where a.placed), '{}'),
		coalesce(range_agg(int8range(a.sequence, a.sequence, '[]'))
			filter (where not a.placed and a.sequence <= coalesce(w.seq, 0)), '{}'),
		0, sum(a.released), sum(a.withdrawn)
	from accepts a left join watermarks w on w.sale_id = $1 and w.partition = a.partition
	group by a.partition
	on conflict on constraint dropped_accepts_pkey do update
	set sequences = d.sequences + excluded.sequences, elsewhere = d.elsewhere + excluded.elsewhere,
		released = d.released + excluded.released, withdrawn = d.withdrawn + excluded.withdrawn
)
select count(*) from dropped`

	// dropPaymentsQuery drops payments with their refunds, and adds them to the sums.
	dropPaymentsQuery = `
with refunded as (
	delete from refunds where sale_id = $1 and payment = any($2::bigint[])
), dropped as (
	delete from payments where sale_id = $1 and id = any($2::bigint[]) returning *
)
insert into dropped_payments as d (sale_id, outcome, currency, payments, amount, refunded)
select $1::text, outcome, coalesce(currency, ''), count(*), coalesce(sum(amount), 0), sum(refunded_amount)
from dropped
group by outcome, coalesce(currency, '')
on conflict on constraint dropped_payments_pkey do update
set payments = d.payments + excluded.payments, amount = d.amount + excluded.amount,
	refunded = d.refunded + excluded.refunded`

	endBatchQuery = `
update sale_drops set batches = $2, orders = orders + $3, exported = exported + case when $4 then $3 else 0 end,
	held = '', looked_at = now()
where sale_id = $1`
)

// DropBatch drops up to limit orders of a sale, with all that belongs to them, after BeginDrop: in one transaction that
// adds them to the sale's sums. Once no order is left that can be dropped, it drops the waitlist, and then the letters.
// Before that, export gets the batch; nil: nobody does. Errors: KindUnavailable, also where export failed.
func (s *Store) DropBatch(
	ctx context.Context, saleID string, limit int, export retention.Export,
) (done retention.Progress, err error) {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	err = s.transaction(ctx, func(tx pgx.Tx) (err error) {
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		d := dropTx{tx: tx, limit: limit, export: export, batch: retention.Batch{SaleID: saleID}}
		done, err = d.run(ctx)
		return err
	})
	if err != nil {
		return retention.Progress{}, wrap(err, "drop orders of sale "+saleID)
	}
	return done, nil
}

// dropTx is the transaction that drops one batch.
type dropTx struct {
	tx     pgx.Tx
	limit  int
	export retention.Export
	batch  retention.Batch
}

func (d *dropTx) run(ctx context.Context) (retention.Progress, error) {
	var batches int64
	err := d.tx.QueryRow(ctx, dropTurnQuery, d.batch.SaleID).Scan(&batches)
	if errors.Is(err, pgx.ErrNoRows) { // another run has finished it
		return retention.Progress{Finished: true}, nil
	}
	if err != nil {
		return retention.Progress{}, err
	}
	d.batch.Number = batches + 1
	for _, part := range []func(context.Context) error{d.orders, d.waitlist, d.letters} {
		if err := part(ctx); err != nil {
			return retention.Progress{}, err
		}
		if rows := d.batch.Rows(); rows > 0 {
			_, err := d.tx.Exec(ctx, endBatchQuery, d.batch.SaleID, d.batch.Number, len(d.batch.Orders), d.export != nil)
			return retention.Progress{Rows: rows}, err
		}
	}
	return d.finish(ctx)
}

// exported has the batch written before anything is dropped.
func (d *dropTx) exported() error {
	return writeOut(d.export, &d.batch)
}

// writeOut has a batch exported. What goes wrong then is no fault of Postgres, and must not be taken for one.
func writeOut(export retention.Export, batch *retention.Batch) error {
	if export == nil || batch.Rows() == 0 {
		return nil
	}
	if err := export(batch); err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "what was kept for long enough could not be exported, and is kept")
	}
	return nil
}

// orders drops orders. The payments are read once the orders are locked: nothing changes them any more.
func (d *dropTx) orders(ctx context.Context) error {
	b := &d.batch
	found, err := collect(ctx, d.tx, scanListedOrder, ordersToDropQuery, b.SaleID, d.limit)
	if err != nil || len(found) == 0 {
		return err
	}
	of, err := collect(ctx, d.tx, scanPayment, `
		select `+paymentColumns+` from payments where order_id = any($2::text[]::uuid[]) and sale_id = $1
		order by id for update`, b.SaleID, orderIDs(found))
	if err != nil {
		return err
	}
	owing := map[string]bool{} // since the orders were read
	for i := range of {
		owing[of[i].OrderID] = owing[of[i].OrderID] || of[i].Outcome.Due()
	}
	for i := range found {
		if !owing[found[i].ID] {
			b.Orders = append(b.Orders, found[i])
		}
	}
	var payments []int64
	for i := range of {
		if !owing[of[i].OrderID] {
			b.Payments, payments = append(b.Payments, of[i]), append(payments, of[i].ID)
		}
	}
	b.Refunds, err = collect(ctx, d.tx, scanRefund,
		`select `+refundColumns+` from refunds where sale_id = $1 and payment = any($2::bigint[]) order by id for update`,
		b.SaleID, payments)
	if err != nil {
		return err
	}
	if err := d.exported(); err != nil {
		return err
	}
	return d.dropOrders(ctx, orderIDs(b.Orders), payments)
}

func (d *dropTx) dropOrders(ctx context.Context, orders []string, payments []int64) error {
	var dropped int
	if err := d.tx.QueryRow(ctx, dropOrdersQuery, d.batch.SaleID, orders).Scan(&dropped); err != nil {
		return err
	}
	if dropped != len(orders) { // they were locked: a fault of the program
		return pipeline.Errorf(pipeline.KindData, "%d orders were to be dropped, and %d were", len(orders), dropped)
	}
	_, err := d.tx.Exec(ctx, dropPaymentsQuery, d.batch.SaleID, payments)
	return err
}

// waitlist drops entries of the waitlist. waitlist_pkey serves.
func (d *dropTx) waitlist(ctx context.Context) (err error) {
	d.batch.Waitlist, err = collect(ctx, d.tx, scanWaitlistEntry, `
		select `+waitlistColumns+` from waitlist where sale_id = $1 order by order_id limit $2 for update`,
		d.batch.SaleID, d.limit)
	if err != nil || len(d.batch.Waitlist) == 0 {
		return err
	}
	if err := d.exported(); err != nil {
		return err
	}
	orders := make([]string, len(d.batch.Waitlist))
	for i := range orders {
		orders[i] = d.batch.Waitlist[i].OrderID
	}
	_, err = d.tx.Exec(ctx, `
		with dropped as (
			delete from waitlist where sale_id = $1 and order_id = any($2::text[]::uuid[]) returning partition
		)
		update dropped_accepts a set waitlist = waitlist + n.entries
		from (select partition, count(*) as entries from dropped group by partition) n
		where a.sale_id = $1 and a.partition = n.partition`, d.batch.SaleID, orders)
	return err
}

// letters drops the resolved dead letters. dead_letters_sale_idx serves.
func (d *dropTx) letters(ctx context.Context) (err error) {
	d.batch.Letters, err = collect(ctx, d.tx, scanWholeLetter, `
		select `+letterColumns+`, payload::text from dead_letters where sale_id = $1 and resolved_at is not null
		order by id limit $2 for update`, d.batch.SaleID, d.limit)
	if err != nil || len(d.batch.Letters) == 0 {
		return err
	}
	if err := d.exported(); err != nil {
		return err
	}
	_, err = d.tx.Exec(ctx, `delete from dead_letters where sale_id = $1 and id = any($2::bigint[])`, d.batch.SaleID,
		ids(d.batch.Letters, func(l *deadletter.Letter) int64 { return l.ID }))
	return err
}

// finish ends the drop of a sale of which nothing is left, or says what is.
func (d *dropTx) finish(ctx context.Context) (done retention.Progress, err error) {
	var holds retention.Holds
	var left int64
	err = d.tx.QueryRow(ctx, dropHoldsQuery, d.batch.SaleID).Scan(&holds.Unpaid, &holds.RefundsDue, &holds.PaymentsDue,
		&holds.Letters, &holds.Releases, &holds.StockReducing)
	if err == nil {
		err = d.tx.QueryRow(ctx, `select count(*) from orders where sale_id = $1`, d.batch.SaleID).Scan(&left)
	}
	if err != nil {
		return done, err
	}
	done.Held = holds.String()
	if left > 0 && done.Held == "" {
		done.Held = fmt.Sprintf("%d orders are being changed", left)
	}
	done.Finished = done.Held == ""
	query := `update sale_drops set held = $2, looked_at = now(), finished_at = null where sale_id = $1`
	if done.Finished {
		query = `update sale_drops set held = $2, looked_at = now(), finished_at = now() where sale_id = $1`
	}
	_, err = d.tx.Exec(ctx, query, d.batch.SaleID, done.Held)
	return done, err
}

// collect returns all rows of a query in a transaction, planned for its values.
func collect[T any](
	ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], query string, args ...any,
) ([]T, error) {
	rows, err := tx.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

func scanListedOrder(row pgx.CollectableRow) (o lifecycle.ListedOrder, err error) {
	o.Order, err = scanOrderAnd(row, &o.UnitPrice, &o.Currency)
	return o, err
}

func scanWholeLetter(row pgx.CollectableRow) (deadletter.Letter, error) {
	var payload string
	letter, err := scanLetter(row, &payload)
	if err != nil {
		return letter, err
	}
	return letter, readPayload(payload, &letter)
}

func orderIDs(orders []lifecycle.ListedOrder) []string {
	ids := make([]string, len(orders))
	for i := range orders {
		ids[i] = orders[i].ID
	}
	return ids
}
