package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

const (
	paymentColumns = `id, coalesce(webhook_id, ''), payment_id, sale_id, coalesce(order_id::text, ''), user_id,
	coalesce(amount, 0), coalesce(currency, ''), outcome, reason, detail, order_status, actor, received_at, decided_at,
	refunded_amount, refunded_at`

	// countedPayments are the outcomes of payments that belong to an order, as in payments_money_key; what was refused or
	// repeated does not.
	countedPayments = `('waiting', 'paid', 'refund_due', 'refunded')`

	// paymentLockQuery lets reports of the same money pass one by one. It is a statement of its own: what is read after it
	// was committed before.
	paymentLockQuery = `select pg_advisory_xact_lock(hashtextextended('sluice:payment:' || $1, 0))`

	// knownPaymentQuery finds the record of the same message, and that of the same money. It relies on
	// payments_webhook_id_key and payments_money_key.
	knownPaymentQuery = `
select ` + paymentColumns + ` from payments where webhook_id = $1
union
select ` + paymentColumns + ` from payments where payment_id = $2 and outcome in ` + countedPayments

	// payableQuery locks the order's row until the transaction ends: a cancellation meanwhile waits, and an expiry skips
	// it.
	payableQuery = orderQuery + ` for no key update`

	payQuery = `
update orders set status = $3, paid_at = now(), payment_id = $4
where sale_id = $1 and id = $2::text::uuid and status = any($5::text[])
returning ` + orderColumns

	insertPaymentQuery = `
with inserted as (
	insert into payments (webhook_id, payment_id, sale_id, order_id, user_id, amount, currency, outcome, reason, detail,
		order_status, actor, decided_at)
	values (nullif($1, ''), $2, $3, nullif($4, '')::uuid, $5, nullif($6::bigint, 0), nullif($7, ''), $8, $9, $10, $11, $12,
		case when $8 <> 'waiting' then now() end)
	returning *
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select actor, 'pay', nullif(sale_id, ''), $13::text::jsonb from inserted where $14
)
select ` + paymentColumns + ` from inserted`

	// paymentRounds bounds how often a payment starts again because another one with its webhook id came in between.
	paymentRounds = 3
)

// RecordPayment decides a payment and records it, in one transaction with what it does to its order. It may be called
// any number of times, also at once: a webhook that is known gets its first outcome again, and money that is known
// counts once. Where the order has no row, or sale is nil, absent decides; if absent has no Outcome, nothing is
// recorded. Errors: KindUnavailable; KindData for values that Postgres refuses.
func (s *Store) RecordPayment(
	ctx context.Context, payment payments.Payment, sale *pipeline.Sale, absent payments.Decision,
) (payments.Record, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var record payments.Record
	var err error
	for range paymentRounds {
		record, err = retryCollisions(ctx, func() (record payments.Record, err error) {
			err = s.begin(ctx, func(tx pgx.Tx) error {
				t := paymentTx{tx: tx, sale: sale, absent: absent}
				record, err = t.record(ctx, payment)
				return err
			})
			return record, err
		})
		if !breaks(err, "payments_webhook_id_key") {
			break
		}
	}
	if err == nil && record.Replayed {
		err = s.confirm(ctx)
	}
	return record, wrap(err, "record a payment")
}

// paymentTx is the transaction that decides one payment.
type paymentTx struct {
	tx     pgx.Tx
	sale   *pipeline.Sale       // nil where there is no such sale
	absent payments.Decision    // where the order has no row
	before pipeline.OrderStatus // of the order, where the payment changes it
}

func (d *paymentTx) record(ctx context.Context, p payments.Payment) (payments.Record, error) {
	var record payments.Record
	if _, err := d.tx.Exec(ctx, paymentLockQuery, p.PaymentID); err != nil {
		return record, err
	}
	message, money, err := d.known(ctx, &p)
	if err != nil {
		return record, err
	}
	if message != nil {
		record.Payment, record.Replayed = *message, true
		return record, nil
	}
	decision := d.absent
	switch {
	case d.sale == nil:
	case money != nil:
		decision = againstKnown(&p, money)
		p.OrderStatus = money.OrderStatus
	default:
		if decision, err = d.payOrder(ctx, &p, &record); err != nil {
			return record, err
		}
	}
	if decision.Outcome == "" {
		return record, nil
	}
	if decision.Outcome == payments.Unneeded {
		p.Outcome, p.Detail = decision.Outcome, decision.Detail
		record.Payment = p
		return record, nil
	}
	record.Payment, err = d.insertPayment(ctx, &p, decision)
	return record, err
}

// known returns what is recorded of the same message, and of the same money; nil where nothing is.
func (d *paymentTx) known(ctx context.Context, p *payments.Payment) (message, money *payments.Payment, err error) {
	rows, err := d.tx.Query(ctx, knownPaymentQuery, optionalText(p.WebhookID), p.PaymentID)
	if err != nil {
		return nil, nil, err
	}
	known, err := pgx.CollectRows(rows, scanPayment)
	for i := range known {
		if known[i].WebhookID != "" && known[i].WebhookID == p.WebhookID {
			message = &known[i]
		} else {
			money = &known[i]
		}
	}
	return message, money, err
}

// againstKnown decides a payment whose money is known: it is a repetition, or a contradiction.
func againstKnown(p, known *payments.Payment) payments.Decision {
	sameAmount := p.Amount == known.Amount && p.Currency == known.Currency || p.Amount == 0 || known.Amount == 0
	if p.SaleID != known.SaleID || p.OrderID != known.OrderID || !sameAmount {
		return payments.Refusal(payments.ReasonPaymentReused,
			"payment %s was reported before, with another order or amount", p.PaymentID)
	}
	return payments.Decision{Outcome: payments.Repeated}
}

// payOrder decides a payment by its order, whose row it locks, and changes the order accordingly.
func (d *paymentTx) payOrder(
	ctx context.Context, p *payments.Payment, record *payments.Record,
) (payments.Decision, error) {
	rows, err := d.tx.Query(ctx, payableQuery, p.SaleID, p.OrderID)
	if err != nil {
		return d.absent, err
	}
	record.Order, err = pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		record.Order = pipeline.Order{}
		if d.absent.Outcome == payments.Waiting {
			p.OrderStatus = pipeline.StatusQueued
		}
		return d.absent, nil
	}
	if err != nil {
		return d.absent, err
	}
	decision := p.Decide(d.sale, &record.Order)
	if payments.Erased(record.Order.UserID) {
		p.UserID = "" // nor is the payer's name to come back
	}
	if decision.Becomes != "" {
		d.before = record.Order.Status
		rows, err := d.tx.Query(ctx, payQuery,
			p.SaleID, p.OrderID, decision.Becomes, p.PaymentID, statuses(decision.Becomes.Before()))
		if err != nil {
			return decision, err
		}
		// The row is locked since it was read: one that does not change now is a fault of the program.
		if record.Order, err = pgx.CollectExactlyOneRow(rows, scanOrder); err != nil {
			return decision, err
		}
		record.Changed = true
	}
	if decision.Reason != payments.ReasonForeignOrder { // the status of another buyer's order is not shown
		p.OrderStatus = record.Order.Status
	}
	return decision, nil
}

func (d *paymentTx) insertPayment(
	ctx context.Context, p *payments.Payment, decision payments.Decision,
) (payments.Payment, error) {
	said := map[string]any{
		"order_id": p.OrderID, "payment_id": p.PaymentID, "amount": p.Amount, "currency": p.Currency,
		"outcome": decision.Outcome, "reason": decision.Reason, "order_status": p.OrderStatus,
	}
	if d.before != "" {
		said["before"] = map[string]any{"status": d.before}
		said["after"] = map[string]any{"status": p.OrderStatus}
	}
	detail, err := json.Marshal(said)
	if err != nil {
		return *p, err
	}
	rows, err := d.tx.Query(ctx, insertPaymentQuery, p.WebhookID, p.PaymentID, p.SaleID, p.OrderID, p.UserID, p.Amount,
		p.Currency, decision.Outcome, decision.Reason, decision.Detail, p.OrderStatus, p.Actor, string(detail),
		p.Actor != payments.WebhookActor)
	if err != nil {
		return *p, err
	}
	return pgx.CollectExactlyOneRow(rows, scanPayment)
}

func scanPayment(row pgx.CollectableRow) (payments.Payment, error) {
	var p payments.Payment
	var decided, refunded *time.Time
	err := row.Scan(&p.ID, &p.WebhookID, &p.PaymentID, &p.SaleID, &p.OrderID, &p.UserID, &p.Amount, &p.Currency,
		&p.Outcome, &p.Reason, &p.Detail, &p.OrderStatus, &p.Actor, &p.ReceivedAt, &decided,
		&p.RefundedAmount, &refunded)
	p.ReceivedAt, p.DecidedAt, p.RefundedAt = p.ReceivedAt.UTC(), timeOrZero(decided), timeOrZero(refunded)
	return p, err
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
func (s *Store) Payments(ctx context.Context, filter payments.Filter) ([]payments.Payment, error) {
	if filter.Limit <= 0 || filter.Limit > payments.MaxPayments {
		filter.Limit = payments.MaxPayments
	}
	query, args := paymentsQuery, []any{filter.After, filter.SaleID, string(filter.Outcome), filter.Limit}
	if filter.OrderID != "" {
		id, err := uuid.Parse(filter.OrderID)
		if err != nil {
			return nil, nil //nolint:nilerr // what is no UUID is no order's id, and has no payments
		}
		query, args = orderPaymentsQuery, append(args, id.String())
	}
	if filter.SaleID != "" && !pipeline.ValidSaleID(filter.SaleID) {
		return nil, nil
	}
	return queryAll(ctx, s, "payments", scanPayment, query, args...)
}
