package db

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/recovery"
)

// forgotten is the part of a Store that finds out what this database has forgotten, and stores it again.
type forgotten struct{ store *Store }

// ledgerMarksQuery leaves out what is not in Redis, or need not be: sales that left it, and those whose orders were
// dropped.
const ledgerMarksQuery = `
select s.id, p.partition, coalesce(w.stored, 0), coalesce(w.released, 0), coalesce(w.releases_lost, 0),
	cardinality(s.partitions) > 1, s.moves, coalesce((
		select min(number) - 1 from unit_moves m where m.sale_id = s.id and m.state in ('intended', 'taken')
	), s.moves)
from sales s
cross join lateral unnest(s.partitions) as p (partition)
left join watermarks w on w.sale_id = s.id and w.partition = p.partition
where s.retired_at is null and s.orders_dropped_at is null
order by s.closes_at desc, s.id, p.partition`

// LedgerMarks returns what the marks in Redis are compared with, for every sale that Redis may have.
func (f forgotten) LedgerMarks(ctx context.Context) ([]recovery.LedgerMark, error) {
	return queryAll(ctx, f.store, "ledger marks", func(row pgx.CollectableRow) (m recovery.LedgerMark, err error) {
		return m, row.Scan(&m.SaleID, &m.Partition, &m.Stored, &m.Released, &m.ReleasesLost, &m.Spread, &m.Moves,
			&m.MovesDone)
	}, ledgerMarksQuery)
}

// CountReleases counts the releases of a sale on a partition, and those that Redis is known to have. It relies on
// releases_pkey.
func (f forgotten) CountReleases(ctx context.Context, at pipeline.SalePartition) (all, applied int64, err error) {
	counts, err := queryOne(ctx, f.store, "releases", pgx.RowTo[[]int64], `
		select array[count(*), count(applied_at)] from releases where sale_id = $1 and partition = $2`,
		at.SaleID, at.Partition)
	if err != nil {
		return 0, 0, err
	}
	return counts[0], counts[1], nil
}

// WriteOffReleases says how many releases of a sale on a partition this database lacks for good.
func (f forgotten) WriteOffReleases(ctx context.Context, at pipeline.SalePartition, lost int64) error {
	_, err := f.store.exec(ctx, "write releases off", `
		insert into watermarks as w (sale_id, partition, releases_lost) values ($1, $2, $3)
		on conflict (sale_id, partition) do update
		set releases_lost = greatest(w.releases_lost, excluded.releases_lost), updated_at = excluded.updated_at`,
		at.SaleID, at.Partition, lost)
	return err
}

// EverExamined reports whether any server of this database ever was.
func (f forgotten) EverExamined(ctx context.Context) (bool, error) {
	return queryValue[bool](ctx, f.store, "server", `select exists (select from examined_server)`)
}

// ServerIdentity names the server that answers, and the database.
func (f forgotten) ServerIdentity(ctx context.Context) (string, error) {
	return queryValue[string](ctx, f.store, "server", `select server_identity()`)
}

// RecordExamined says that a server's rows are all that Redis knows of. Errors: installation.ErrUnexamined, when
// another server answers by now.
func (f forgotten) RecordExamined(ctx context.Context, identity string) error {
	n, err := f.store.exec(ctx, "record the server", `
		insert into examined_server as e (identity) select $1::text where server_identity() = $1::text
		on conflict (single) do update set identity = excluded.identity, examined_at = now()`, identity)
	if err == nil && n == 0 {
		err = installation.ErrUnexamined
	}
	return err
}

// beginLossQuery returns what it inserted, or else what is there: one statement sees nothing of what it inserts.
const beginLossQuery = `
with begun as (
	insert into ledger_losses (detail) values ($1::text::jsonb)
	on conflict ((finished_at is null)) where finished_at is null do nothing
	returning found_at, detail
), unexamined as (
	insert into examined_server as e (identity) values ('has forgotten orders')
	on conflict (single) do update set identity = excluded.identity, examined_at = now()
)
select found_at, detail::text from begun
union all
select found_at, detail::text from ledger_losses where finished_at is null`

// BeginLedgerLoss records that Postgres was found to have forgotten something, once until it is finished, and returns
// what was recorded. From here on this server counts as not examined.
func (f forgotten) BeginLedgerLoss(
	ctx context.Context, behind []recovery.SaleLoss,
) (begun recovery.BegunLoss, err error) {
	detail, err := json.Marshal(behind)
	if err != nil {
		return begun, err
	}
	return queryOne(ctx, f.store, "record a loss", func(row pgx.CollectableRow) (begun recovery.BegunLoss, err error) {
		var detail string
		if err := row.Scan(&begun.FoundAt, &detail); err != nil {
			return begun, err
		}
		return begun, json.Unmarshal([]byte(detail), &begun.Behind)
	}, beginLossQuery, string(detail))
}

// countHomeQuery relies on orders_pkey, releases_pkey and dead_letters_sale_idx. A row that was stored while nothing
// else was, is one that was stored again.
const countHomeQuery = `
select
	(select count(*) from orders where sale_id = $1 and partition = $2 and persisted_at >= $3),
	(select count(*) from releases
		where sale_id = $1 and partition = $2 and reason = 'ledger-loss' and created_at >= $3),
	(select count(*) from dead_letters
		where sale_id = $1 and partition = $2 and starts_with(entry_id, 'ledger:') and created_at >= $3)`

// CountHome counts what was done about orders of a sale on a partition since a loss was found.
func (f forgotten) CountHome(
	ctx context.Context, at pipeline.SalePartition, since time.Time,
) (recovery.HomeCount, error) {
	var n recovery.HomeCount
	err := f.store.snapshot(ctx, "restored orders", func(ctx context.Context, tx pgx.Tx) error {
		row := tx.QueryRow(ctx, countHomeQuery, at.SaleID, at.Partition, since)
		return row.Scan(&n.Restored, &n.Ended, &n.Refused)
	})
	return n, err
}

// UnfinishedLedgerLoss reports whether a loss was found, and not all of its orders are stored again.
func (f forgotten) UnfinishedLedgerLoss(ctx context.Context) (bool, error) {
	return queryValue[bool](ctx, f.store, "losses", `select exists (select from ledger_losses where finished_at is null)`)
}

// finishLossQuery is one transaction, so that no order is stored on this server before its marks are those of Redis:
// they were compared for the last time. The audit log gets a line for each sale.
const finishLossQuery = `
with fence as (
	select number from join_generation() as number where number = $1 and server_identity() = $2::text
), input as (
	select * from jsonb_to_recordset($3::text::jsonb) as i (
		sale_id text, partition smallint, settled bigint, accepted bigint, missing bigint, releases_lost bigint)
), marked as (
	insert into watermarks as w (sale_id, partition, stored, lost, releases_lost, seq, whole)
	select i.sale_id, i.partition, i.settled, i.missing, i.releases_lost, i.accepted, i.accepted
	from fence cross join input i
	order by i.sale_id, i.partition
	on conflict (sale_id, partition) do update set
		stored = greatest(w.stored, excluded.stored), lost = w.lost + excluded.lost,
		releases_lost = greatest(w.releases_lost, excluded.releases_lost),
		seq = greatest(w.seq, excluded.seq), whole = greatest(w.whole, excluded.whole),
		updated_at = excluded.updated_at
), examined as (
	insert into examined_server as e (identity) select $2::text from fence
	on conflict (single) do update set identity = excluded.identity, examined_at = now()
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select 'sluice', 'ledger-loss', d ->> 'sale_id', d
	from fence cross join jsonb_array_elements($3::text::jsonb) as d
)
update ledger_losses set finished_at = now(), detail = $3::text::jsonb
from fence
where finished_at is null`

// FinishLedgerLoss records what was done about a loss, and that the server is examined. Errors:
// pipeline.ErrStaleGeneration, when another verification began since, or another server answers: nothing was written.
func (f forgotten) FinishLedgerLoss(
	ctx context.Context, g pipeline.Generation, identity string, sales []recovery.SaleLoss,
) error {
	detail, err := json.Marshal(sales)
	if err != nil {
		return err
	}
	n, err := f.store.exec(ctx, "record the end of a loss", finishLossQuery, g, identity, string(detail))
	if err == nil && n == 0 {
		err = pipeline.ErrStaleGeneration
	}
	return err
}

// LedgerLosses returns the losses, the latest first, at most a hundred.
func (f forgotten) LedgerLosses(ctx context.Context) ([]recovery.LedgerLoss, error) {
	return queryAll(ctx, f.store, "losses", func(row pgx.CollectableRow) (l recovery.LedgerLoss, err error) {
		var detail string
		var finished *time.Time
		if err = row.Scan(&l.ID, &l.FoundAt, &finished, &detail); err != nil {
			return l, err
		}
		l.FoundAt, l.FinishedAt = l.FoundAt.UTC(), timeOrZero(finished)
		return l, json.Unmarshal([]byte(detail), &l.Sales)
	}, `select id, found_at, finished_at, detail::text from ledger_losses order by id desc limit 100`)
}

// PersistMarked is PersistOrders, and returns the marks of the sales of orders that stand, with which their events are
// settled: how many rows were ever stored of each on its partition, by a count that only grows.
func (f forgotten) PersistMarked(
	ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	return f.store.persist(ctx, fencing{generation: generation}, events)
}

// PersistHome is PersistOrders on a server that was not examined yet: by the one process that stores again what is
// missing there.
func (f forgotten) PersistHome(
	ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, error) {
	outcomes, _, err := f.store.persist(ctx, fencing{generation: generation, unexamined: true}, events)
	return outcomes, err
}

// noID is before every id.
const noID = "00000000-0000-0000-0000-000000000000"

// liveAfterQuery relies on orders_pkey.
const liveAfterQuery = `
select id::text, user_id from orders
where sale_id = $1 and partition = $2 and id > $3::text::uuid
	and status in ('awaiting_payment', 'confirmed', 'paid')
order by id limit $4`

// LiveOrdersAfter returns up to limit live orders of a sale on a partition, by their ids, after one ("": from the
// first).
func (f forgotten) LiveOrdersAfter(
	ctx context.Context, at pipeline.SalePartition, after string, limit int,
) ([]pipeline.LedgerOrder, error) {
	if after == "" {
		after = noID
	}
	return queryAll(ctx, f.store, "live orders", func(row pgx.CollectableRow) (o pipeline.LedgerOrder, err error) {
		return o, row.Scan(&o.OrderID, &o.UserID)
	}, liveAfterQuery, at.SaleID, at.Partition, after, limit)
}

// endForgottenQuery ends orders whose units Redis has given back. Their releases are applied, and count as such. Only
// a return takes units of a paid order back, so its money is due for refund, as in returnQuery; that their units were
// withdrawn is not known here.
const endForgottenQuery = `
with fence as (
	select number from join_generation() as number where number = $3
), ended as (
	update orders o set status = case when o.status = 'paid' then 'returned' else 'cancelled' end, closed_at = now()
	from fence
	where o.sale_id = $1 and o.id = any($2::text[]::uuid[]) and o.status in ('awaiting_payment', 'confirmed', 'paid')
	returning o.*
), due as (
	update payments p set outcome = 'refund_due', reason = 'order-returned', order_status = 'returned',
		detail = 'the order had been returned before Postgres lost that; it is to be paid back, unless it was'
	from ended e
	where p.sale_id = e.sale_id and p.order_id = e.id and e.status = 'returned' and p.outcome = 'paid'
), owed as (
	insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason, applied_at, given_back)
	select sale_id, id, sequence, user_id, quantity, partition, 'ledger-loss', now(), true from ended
	on conflict do nothing
), moved as (
	select sale_id, -quantity as units from ended
), ` + countMoved + `, marked as (
	insert into watermarks as w (sale_id, partition, released)
	select e.sale_id, e.partition, count(*) from ended e join counted c on c.id = e.sale_id
	group by e.sale_id, e.partition
	on conflict (sale_id, partition) do update
	set released = w.released + excluded.released, updated_at = excluded.updated_at
)
select (select count(*) from fence), (select count(*) from ended)`

// EndForgotten ends live orders of a sale whose units Redis has given back already, and returns how many it ended.
// Errors: pipeline.ErrStaleGeneration.
func (f forgotten) EndForgotten(
	ctx context.Context, g pipeline.Generation, saleID string, orderIDs []string,
) (int64, error) {
	type result struct{ fence, ended int64 }
	r, err := queryOne(ctx, f.store, "end orders", func(row pgx.CollectableRow) (r result, err error) {
		return r, row.Scan(&r.fence, &r.ended)
	}, endForgottenQuery, saleID, orderIDs, g)
	if err == nil && r.fence == 0 {
		err = pipeline.ErrStaleGeneration
	}
	return r.ended, err
}

// spareQuery walks orders_pkey: by what is due, each page would begin with what the ones before left dead. Until when
// is computed before the update, in which Citus would have nothing of the kind.
const spareQuery = `
with page as (
	select max(id::text) as last from (
		select id from orders where sale_id = $1 and id > $6::text::uuid order by id limit $3
	) as next
), until as materialized (
	select $5::timestamptz + least(payment_window, $2::interval) as pay_by from sales where id = $1
), spared as (
	update orders o set pay_by = u.pay_by
	from until u
	where o.sale_id = $1 and o.partition = $4
		and o.id > $6::text::uuid and o.id <= (select last::uuid from page)
		and o.status = 'awaiting_payment' and o.pay_by < u.pay_by
	returning 1
)
select coalesce((select last from page), ''), (select count(*) from spared)`

// Spare gives orders of a sale on a partition that await their payment at least so much time for it from an instant on,
// and not more than the sale gives. It takes up to limit orders of the sale by their ids, after one ("": from the
// first), and returns the last of them, "" when there are none, and how many it gave time.
func (f forgotten) Spare(
	ctx context.Context, at pipeline.SalePartition, until recovery.Spared, after string, limit int,
) (last string, spared int64, err error) {
	if after == "" {
		after = noID
	}
	type result struct {
		last   string
		spared int64
	}
	r, err := queryOne(ctx, f.store, "extend orders", func(row pgx.CollectableRow) (r result, err error) {
		return r, row.Scan(&r.last, &r.spared)
	}, spareQuery, at.SaleID, until.AtLeast, limit, at.Partition, until.From, after)
	return r.last, r.spared, err
}

// WholeUntil returns the highest accept of a sale on a partition up to which everything that Redis had was stored again
// when Postgres had gone back; 0 where it never had. An accept up to that one without a row had ended.
func (f forgotten) WholeUntil(ctx context.Context, at pipeline.SalePartition) (int64, error) {
	return queryValue[int64](ctx, f.store, "watermark", `
		select coalesce((select whole from watermarks where sale_id = $1 and partition = $2), 0)`, at.SaleID, at.Partition)
}
