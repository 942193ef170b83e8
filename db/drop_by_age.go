package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline/auditlog"
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
select ` + paymentColumns + ` from payments p
where p.outcome in ('refused', 'repeated') and p.received_at < now() - $1::interval and coalesce((
	select false from orders o where o.sale_id = p.sale_id and o.id = p.order_id limit 1
), true)
order by p.received_at limit $2
for update skip locked`

	// oldRefundsQuery relies on refunds_unmatched_idx.
	oldRefundsQuery = `
select ` + refundColumns + ` from refunds r
where r.payment is null and r.received_at < now() - $1::interval
order by r.received_at limit $2
for update skip locked`

	// oldLettersQuery drops what was resolved of sales that have nothing left, and of no sale. One that names no sale, or
	// none that there is, may explain a missing accept of any sale of its time.
	oldLettersQuery = `
select ` + letterColumns + `, payload::text from dead_letters l
where l.resolved_at < now() - $1::interval and not exists (
	select from sales s left join sale_drops d on d.sale_id = s.id
	where d.finished_at is null and (s.id = l.sale_id or s.created_at <= l.created_at and (
		l.sale_id = '' or not exists (select from sales where id = l.sale_id)))
)
order by l.id limit $2
for update skip locked`
)

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
	read  func(context.Context, pgx.Tx, *retention.Batch) error
	ids   func(*retention.Batch) []int64
}

func oldLog(after time.Duration, limit int) oldRows {
	return oldRows{"audit_log", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (err error) {
		b.Log, err = collect(ctx, tx, scanLogEntry, oldLogQuery, after, limit)
		return err
	}, func(b *retention.Batch) []int64 { return ids(b.Log, func(e *auditlog.Entry) int64 { return e.ID }) }}
}

func oldPayments(after time.Duration, limit int) oldRows {
	return oldRows{"payments", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (err error) {
		b.Payments, err = collect(ctx, tx, scanPayment, oldPaymentsQuery, after, limit)
		return err
	}, func(b *retention.Batch) []int64 {
		return ids(b.Payments, func(p *payments.Payment) int64 { return p.ID })
	}}
}

func oldRefunds(after time.Duration, limit int) oldRows {
	return oldRows{"refunds", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (err error) {
		b.Refunds, err = collect(ctx, tx, scanRefund, oldRefundsQuery, after, limit)
		return err
	}, func(b *retention.Batch) []int64 {
		return ids(b.Refunds, func(r *payments.Refund) int64 { return r.ID })
	}}
}

func oldLetters(after time.Duration, limit int) oldRows {
	return oldRows{"dead_letters", func(ctx context.Context, tx pgx.Tx, b *retention.Batch) (err error) {
		b.Letters, err = collect(ctx, tx, scanWholeLetter, oldLettersQuery, after, limit)
		return err
	}, func(b *retention.Batch) []int64 {
		return ids(b.Letters, func(l *deadletter.Letter) int64 { return l.ID })
	}}
}

func ids[T any](rows []T, id func(*T) int64) []int64 {
	of := make([]int64, len(rows))
	for i := range rows {
		of[i] = id(&rows[i])
	}
	return of
}

// dropOld drops the oldest rows of a table, once they are exported. The batch's number is the id of the first one.
func (s *Store) dropOld(ctx context.Context, old oldRows, export retention.Export) (int, error) {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	var batch retention.Batch
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch = retention.Batch{}
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		if err := old.read(ctx, tx, &batch); err != nil || batch.Rows() == 0 {
			return err
		}
		rows := old.ids(&batch)
		batch.Number = rows[0]
		if err := writeOut(export, &batch); err != nil {
			return err
		}
		query := `delete from ` + pgx.Identifier{old.table}.Sanitize() + ` where id = any($1::bigint[])`
		_, err := tx.Exec(ctx, query, rows)
		return err
	})
	if err != nil {
		return 0, wrap(err, "drop old rows of "+old.table)
	}
	return batch.Rows(), nil
}
