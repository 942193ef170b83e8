package db

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline/deadletter"
	"sluice/pipeline/payments"
	"sluice/pipeline/retention"
)

const (
	// oldLogQuery reads the left end of audit_log_pkey: ids are about the order of times. The request of an operator names
	// its line for two days, which is much less than any line is kept.
	oldLogQuery = `
select id, at, actor, action, coalesce(sale_id, ''), detail::text
from (select * from audit_log order by id limit $2 for update skip locked) oldest
where at < now() - $1::interval
order by id`

	// oldPaymentsQuery relies on payments_refused_idx. What belongs to an order is dropped with it.
	oldPaymentsQuery = `
select p.sale_id, p.id from payments p
where p.outcome in ('refused', 'repeated') and p.received_at < now() - $1::interval and coalesce((
	select false from orders o where o.sale_id = p.sale_id and o.id = p.order_id limit 1
), true)
order by p.received_at limit $2`

	// oldRefundsQuery relies on refunds_unmatched_idx.
	oldRefundsQuery = `
select r.sale_id, r.id from refunds r
where r.payment is null and r.received_at < now() - $1::interval
order by r.received_at limit $2`

	// firstUndroppedQuery finds when the oldest sale was made that has anything left.
	firstUndroppedQuery = `
select min(s.created_at) from sales s left join sale_drops d on d.sale_id = s.id where d.finished_at is null`

	// oldLettersQuery drops what was resolved of sales that have nothing left, and of no sale. One that names no sale, or
	// none that there is, may explain a missing accept of any sale of its time ($3: the first such sale's beginning).
	oldLettersQuery = `
select l.sale_id, l.id from dead_letters l
left join sales s on s.id = l.sale_id
left join sale_drops d on d.sale_id = s.id
where l.resolved_at < now() - $1::interval and case
	when s.id is not null then d.finished_at is not null
	else coalesce(l.created_at < $3::timestamptz, true) end
order by l.id limit $2`
)

// lockOld names rows of a sale that were found, and locks them. What changes at this moment is passed over: it comes
// again.
func lockOld(columns, table, still string) string {
	return `select ` + columns + ` from ` + table + ` where sale_id = $1 and id = any($2::bigint[]) and ` + still +
		` for update skip locked`
}

// DropLog drops up to limit lines of the audit log that are older than after, and returns how many.
func (s *Store) DropLog(ctx context.Context, after time.Duration, limit int, export retention.Export) (int, error) {
	return s.dropOld(ctx, oldLog(after, limit), export)
}

// DropRefused drops reports of payments and refunds that changed nothing and belong to no order, and resolved dead
// letters of sales that have nothing left: up to limit of each, older than after. It returns the most of any of them.
func (s *Store) DropRefused(ctx context.Context, after time.Duration, limit int, export retention.Export) (int, error) {
	most := 0
	for _, kind := range []oldRows{oldPayments(after, limit), oldRefunds(after, limit), oldLetters(after, limit)} {
		dropped, err := s.dropOld(ctx, kind, export)
		if err != nil {
			return most, err
		}
		most = max(most, dropped)
	}
	return most, nil
}

// oldRows is a table of which rows are dropped by their age.
type oldRows struct {
	table string
	read  func(context.Context, pgx.Tx, *retention.Batch) ([]oldRow, error) // the rows that it has locked
}

// oldRow names a row. Those of the audit log are named by their ids alone.
type oldRow struct {
	sale string
	id   int64
}

func oldLog(after time.Duration, limit int) oldRows {
	return oldRows{"audit_log", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (rows []oldRow, err error) {
		b.Log, err = collect(ctx, tx, scanLogEntry, oldLogQuery, after, limit)
		for i := range b.Log {
			rows = append(rows, oldRow{id: b.Log[i].ID})
		}
		return rows, err
	}}
}

func oldPayments(after time.Duration, limit int) oldRows {
	old := oldest[payments.Payment]{
		oldPaymentsQuery, lockOld(paymentColumns, "payments", "outcome in ('refused', 'repeated')"), scanPayment,
		func(p *payments.Payment) int64 { return p.ID },
	}
	return oldRows{"payments", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (rows []oldRow, err error) {
		b.Payments, rows, err = old.rows(ctx, tx, after, limit)
		return rows, err
	}}
}

func oldRefunds(after time.Duration, limit int) oldRows {
	old := oldest[payments.Refund]{
		oldRefundsQuery, lockOld(refundColumns, "refunds", "payment is null"), scanRefund,
		func(r *payments.Refund) int64 { return r.ID },
	}
	return oldRows{"refunds", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (rows []oldRow, err error) {
		b.Refunds, rows, err = old.rows(ctx, tx, after, limit)
		return rows, err
	}}
}

func oldLetters(after time.Duration, limit int) oldRows {
	old := oldest[deadletter.Letter]{
		oldLettersQuery, lockOld(letterColumns+", payload::text", "dead_letters", "resolved_at is not null"), scanWholeLetter,
		func(l *deadletter.Letter) int64 { return l.ID },
	}
	return oldRows{"dead_letters", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (rows []oldRow, err error) {
		var first *time.Time
		if err := tx.QueryRow(ctx, firstUndroppedQuery).Scan(&first); err != nil {
			return nil, err
		}
		b.Letters, rows, err = old.rows(ctx, tx, after, limit, first)
		return rows, err
	}}
}

func ids[T any](rows []T, id func(*T) int64) []int64 {
	of := make([]int64, len(rows))
	for i := range rows {
		of[i] = id(&rows[i])
	}
	return of
}

func idsBySale(rows []oldRow) map[string][]int64 {
	bySale := map[string][]int64{}
	for _, row := range rows {
		bySale[row.sale] = append(bySale[row.sale], row.id)
	}
	return bySale
}

// oldest are the rows of a table by sale that are dropped by their age.
type oldest[T any] struct {
	find string // a statement that returns sales and ids
	lock string // see lockOld
	scan pgx.RowToFunc[T]
	id   func(*T) int64
}

// rows finds them, wherever they are, and locks those of each sale by themselves, as far as it can. They come in the
// order in which they were found.
func (o oldest[T]) rows(ctx context.Context, tx pgx.Tx, args ...any) ([]T, []oldRow, error) {
	found, err := collect(ctx, tx, func(row pgx.CollectableRow) (one oldRow, err error) {
		return one, row.Scan(&one.sale, &one.id)
	}, o.find, args...)
	if err != nil {
		return nil, nil, err
	}
	rows := map[int64]T{}
	for sale, among := range idsBySale(found) {
		locked, err := collect(ctx, tx, o.scan, o.lock, sale, among)
		if err != nil {
			return nil, nil, err
		}
		for i := range locked {
			rows[o.id(&locked[i])] = locked[i]
		}
	}
	of := make([]T, 0, len(rows))
	found = slices.DeleteFunc(found, func(one oldRow) bool {
		row, ok := rows[one.id]
		if ok {
			of = append(of, row)
		}
		return !ok
	})
	return of, found, nil
}

// dropOld drops the oldest rows of a table, once they are exported. The batch's number is the id of the first one.
func (s *Store) dropOld(ctx context.Context, old oldRows, export retention.Export) (int, error) {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	var batch retention.Batch
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		batch = retention.Batch{}
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		rows, err := old.read(ctx, tx, &batch)
		if err != nil || len(rows) == 0 {
			return err
		}
		batch.Number = rows[0].id
		if err := writeOut(export, &batch); err != nil {
			return err
		}
		return old.drop(ctx, tx, rows)
	})
	if err != nil {
		return 0, wrap(err, "drop old rows of "+old.table)
	}
	return batch.Rows(), nil
}

// drop deletes rows that are locked.
func (o *oldRows) drop(ctx context.Context, tx pgx.Tx, rows []oldRow) error {
	if o.table == "audit_log" {
		_, err := tx.Exec(ctx, `delete from audit_log where id = any($1::bigint[])`, idsBySale(rows)[""])
		return err
	}
	query := `delete from ` + pgx.Identifier{o.table}.Sanitize() + ` where sale_id = $1 and id = any($2::bigint[])`
	for sale, ids := range idsBySale(rows) {
		if _, err := tx.Exec(ctx, query, sale, ids); err != nil {
			return err
		}
	}
	return nil
}
