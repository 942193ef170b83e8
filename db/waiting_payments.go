package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// waitingPaymentsQuery relies on payments_waiting_idx, and on orders_pkey for each row.
const waitingPaymentsQuery = `
select p.id, p.sale_id, p.received_at, exists (select from orders o where o.sale_id = p.sale_id and o.id = p.order_id)
from payments p
where p.outcome = 'waiting' and p.id > $1
order by p.id limit $2`

// WaitingPayments returns up to limit payments that wait for their orders, oldest first, with ids greater than after.
func (s *Store) WaitingPayments(ctx context.Context, after int64, limit int) ([]payments.WaitingPayment, error) {
	return queryAll(ctx, s, "waiting payments", func(row pgx.CollectableRow) (payments.WaitingPayment, error) {
		var w payments.WaitingPayment
		err := row.Scan(&w.ID, &w.SaleID, &w.ReceivedAt, &w.Stored)
		return w, err
	}, waitingPaymentsQuery, after, limit)
}

const (
	// paymentSaleQuery finds the sale of a payment, on whichever node that is. It never changes.
	paymentSaleQuery = `select sale_id from payments where id = $1`

	// waitingPaymentQuery skips a payment that another call is deciding.
	waitingPaymentQuery = `
select ` + paymentColumns + ` from payments
where id = $1 and sale_id = $2 and outcome = 'waiting' for no key update skip locked`

	decidePaymentQuery = `
update payments set outcome = $2, reason = $3, detail = $4, order_status = $5, decided_at = now()
where id = $1 and sale_id = $6
returning ` + paymentColumns
)

// DecideWaitingPayment decides a payment that waits, by its order, or by absent where that still has no row; if absent
// has no Outcome, it goes on waiting. A payment that does not wait any more, or that another call is deciding, is left
// alone: the record is empty then. Errors: KindUnavailable.
func (s *Store) DecideWaitingPayment(
	ctx context.Context, id int64, sale *pipeline.Sale, absent payments.Decision,
) (payments.Record, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	record, err := retryCollisions(ctx, func() (record payments.Record, err error) {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			d := paymentTx{tx: tx, sale: sale, absent: absent}
			record, err = d.decideWaiting(ctx, id)
			return err
		})
		return record, err
	})
	return record, wrap(err, "decide a payment")
}

func (d *paymentTx) decideWaiting(ctx context.Context, id int64) (payments.Record, error) {
	var record payments.Record
	var sale string
	err := d.tx.QueryRow(ctx, paymentSaleQuery, id).Scan(&sale)
	if errors.Is(err, pgx.ErrNoRows) {
		return record, nil
	}
	if err != nil {
		return record, err
	}
	rows, err := d.tx.Query(ctx, waitingPaymentQuery, id, sale)
	if err != nil {
		return record, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPayment)
	if errors.Is(err, pgx.ErrNoRows) {
		return record, nil
	}
	if err != nil {
		return record, err
	}
	p.OrderStatus = ""
	decision, err := d.payOrder(ctx, &p, &record)
	if err != nil || decision.Outcome == "" {
		return record, err
	}
	if decision.Outcome == payments.Unneeded { // it is recorded already: as one that changed nothing
		decision.Outcome = payments.Repeated
	}
	rows, err = d.tx.Query(ctx, decidePaymentQuery,
		id, decision.Outcome, decision.Reason, decision.Detail, p.OrderStatus, sale)
	if err != nil {
		return record, err
	}
	record.Payment, err = pgx.CollectExactlyOneRow(rows, scanPayment)
	return record, err
}
