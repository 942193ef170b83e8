package db

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

// waitingPaymentsQuery relies on payments_waiting_idx, and on orders_pkey for each row.
const waitingPaymentsQuery = `
select p.id, p.sale_id, p.received_at, exists (select from orders o where o.sale_id = p.sale_id and o.id = p.order_id)
from payments p
where p.outcome = 'waiting' and p.id > $1
order by p.id limit $2`

// WaitingPayments returns up to limit payments that wait for their orders, oldest first, from the first id after.
func (s *Store) WaitingPayments(ctx context.Context, after int64, limit int) ([]pipeline.WaitingPayment, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, waitingPaymentsQuery, after, limit)
	if err != nil {
		return nil, wrap(err, "waiting payments")
	}
	waiting, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pipeline.WaitingPayment, error) {
		var w pipeline.WaitingPayment
		err := row.Scan(&w.ID, &w.SaleID, &w.ReceivedAt, &w.Stored)
		return w, err
	})
	return waiting, wrap(err, "waiting payments")
}

const (
	// waitingPaymentQuery leaves a payment that somebody else is deciding to him.
	waitingPaymentQuery = `
select ` + paymentColumns + ` from payments where id = $1 and outcome = 'waiting' for no key update skip locked`

	decidePaymentQuery = `
update payments set outcome = $2, reason = $3, detail = $4, order_status = $5, decided_at = now()
where id = $1
returning ` + paymentColumns
)

// DecideWaiting decides a payment that waits, by its order, or by absent where that still has no row; without an Outcome
// there it goes on waiting. A payment that does not wait any more, or that somebody else decides now, is left alone: the
// record is empty then. Errors: KindUnavailable.
func (s *Store) DecideWaiting(
	ctx context.Context, id int64, sale *pipeline.Sale, absent pipeline.PaymentDecision,
) (pipeline.PaymentRecord, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	record, err := retryCollisions(ctx, func() (record pipeline.PaymentRecord, err error) {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			record = pipeline.PaymentRecord{}
			return s.decideWaiting(ctx, tx, id, sale, absent, &record)
		})
		return record, err
	})
	return record, wrap(err, "decide a payment")
}

func (s *Store) decideWaiting(
	ctx context.Context, tx pgx.Tx, id int64, sale *pipeline.Sale, absent pipeline.PaymentDecision, record *pipeline.PaymentRecord,
) error {
	rows, err := tx.Query(ctx, waitingPaymentQuery, id)
	if err != nil {
		return err
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPayment)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	p.OrderStatus = ""
	decision, err := s.payOrder(ctx, tx, &p, sale, absent, record)
	if err != nil || decision.Outcome == "" {
		return err
	}
	if rows, err = tx.Query(ctx, decidePaymentQuery, id, decision.Outcome, decision.Reason, decision.Detail, p.OrderStatus); err != nil {
		return err
	}
	record.Payment, err = pgx.CollectExactlyOneRow(rows, scanPayment)
	return err
}

const (
	// paymentsQuery relies on payments_pkey. A filter that few payments match reads on to the end: an operator may wait.
	paymentsQuery = `
select ` + paymentColumns + ` from payments
where id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or outcome = $3)
order by id limit $4`

	// orderPaymentsQuery relies on payments_order_idx: an order has few payments.
	orderPaymentsQuery = `
select ` + paymentColumns + ` from payments
where order_id = $5::text::uuid and id > $1 and ($2 = '' or sale_id = $2) and ($3 = '' or outcome = $3)
order by id limit $4`
)

// Payments returns payments in the order in which they were recorded, the newest last.
func (s *Store) Payments(ctx context.Context, filter pipeline.PaymentsFilter) ([]pipeline.Payment, error) {
	if filter.Limit <= 0 || filter.Limit > pipeline.MaxPayments {
		filter.Limit = pipeline.MaxPayments
	}
	query, args := paymentsQuery, []any{filter.After, filter.SaleID, string(filter.Outcome), filter.Limit}
	if filter.OrderID != "" {
		id, err := uuid.Parse(filter.OrderID)
		if err != nil {
			return nil, nil // what is no order id names an order without payments
		}
		query, args = orderPaymentsQuery, append(args, id.String())
	}
	if filter.SaleID != "" && !pipeline.ValidSaleID(filter.SaleID) {
		return nil, nil
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, wrap(err, "payments")
	}
	payments, err := pgx.CollectRows(rows, scanPayment)
	return payments, wrap(err, "payments")
}
