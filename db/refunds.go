package db

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/payments"
)

const (
	refundColumns = `id, coalesce(webhook_id, ''), refund_id, coalesce(payment, 0), payment_id, coalesce(amount, 0),
	coalesce(currency, ''), partial, outcome, reason, detail, note, actor, received_at`

	// refundLockQuery lets reports of the same refund pass one by one, as paymentLockQuery does with payments.
	refundLockQuery = `select pg_advisory_xact_lock(hashtextextended('sluice:refund:' || $1, 0))`

	// knownRefundQuery finds the record of the same message, and that of the same refund. It relies on
	// refunds_webhook_id_key and refunds_money_key.
	knownRefundQuery = `
select ` + refundColumns + ` from refunds where webhook_id = $1
union
select ` + refundColumns + ` from refunds where refund_id = $2 and outcome <> 'refused'`

	// paymentByIDQuery relies on payments_pkey, paymentByNameQuery on payments_money_key.
	paymentByIDQuery = `
select ` + paymentColumns + ` from payments
where id = $1 and outcome in ` + countedPayments
	paymentByNameQuery = `
select ` + paymentColumns + ` from payments
where payment_id = $1 and outcome in ` + countedPayments

	// lockPayment follows one of them, once the sale is known: a row is locked on the node that has it.
	lockPayment = ` and sale_id = $2 for no key update`

	// refundPaymentQuery takes the time before: Citus evaluates none that is within a case.
	refundPaymentQuery = `
with clock as materialized (select now() as now)
update payments set outcome = $2::text, refunded_amount = refunded_amount + $3::bigint,
	refunded_at = case when $2::text = 'refunded' then clock.now end
from clock
where id = $1 and sale_id = $4 and outcome = 'refund_due'
returning ` + paymentColumns

	// refundOrderQuery relies on payments_order_idx. The order's row was locked before: of two payments that are paid
	// back at once, the later one sees the other.
	refundOrderQuery = `
update orders set status = 'refunded'
where sale_id = $1 and id = $2::text::uuid and status = any($3::text[]) and not exists (
	select from payments p where p.order_id = $2::text::uuid and p.sale_id = $1 and p.outcome = 'refund_due'
)
returning ` + orderColumns

	insertRefundQuery = `
with inserted as (
	insert into refunds (webhook_id, refund_id, payment, payment_id, amount, currency, partial, outcome, reason, detail,
		note, actor, sale_id)
	values (nullif($1, ''), $2, nullif($3::bigint, 0), $4, nullif($5::bigint, 0), nullif($6, ''), $7, $8, $9,
		$10, $11, $12, $13)
	returning *
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select actor, 'refund', nullif($13, ''), $14::text::jsonb from inserted
)
select ` + refundColumns + ` from inserted`
)

// RecordRefund decides a refund and records it, in one transaction with what it does to its payment and order, and with
// its line in the audit log. It may be called any number of times, also at once: a webhook that is known gets its first
// outcome again, and a refund that is known counts once. Errors: KindUnavailable, also while the payment waits for its
// order.
func (s *Store) RecordRefund(ctx context.Context, refund payments.Refund) (payments.RefundRecord, error) {
	return s.refund(ctx, func(ctx context.Context, d *refundTx) (payments.RefundRecord, error) {
		return d.record(ctx, refund)
	})
}

// RefuseRefund records a refund that was refused without looking at its payment.
func (s *Store) RefuseRefund(
	ctx context.Context, refund payments.Refund, why payments.Decision,
) (payments.RefundRecord, error) {
	return s.refund(ctx, func(ctx context.Context, d *refundTx) (payments.RefundRecord, error) {
		return d.refuse(ctx, refund, why)
	})
}

func (s *Store) refund(
	ctx context.Context, work func(context.Context, *refundTx) (payments.RefundRecord, error),
) (record payments.RefundRecord, err error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	for range paymentRounds { // another one with its webhook id may come in between
		record, err = retryCollisions(ctx, func() (record payments.RefundRecord, err error) {
			err = s.begin(ctx, func(tx pgx.Tx) error {
				record, err = work(ctx, &refundTx{tx: tx})
				return err
			})
			return record, err
		})
		if !breaks(err, "refunds_webhook_id_key") {
			break
		}
	}
	if err == nil && record.Replayed {
		err = s.confirm(ctx)
	}
	return record, wrap(err, "record a refund")
}

// refundTx is the transaction that decides one refund.
type refundTx struct {
	tx     pgx.Tx
	before *payments.Payment // where the refund changes it
}

func (d *refundTx) record(ctx context.Context, r payments.Refund) (payments.RefundRecord, error) {
	record, same, err := d.known(ctx, &r)
	if err != nil || record.Replayed {
		return record, err
	}
	if err := d.lockPayment(ctx, &r, &record); err != nil {
		return record, err
	}
	if same != nil {
		return d.repeat(ctx, &r, same, record)
	}
	if record.Payment.ID == 0 {
		return d.insert(ctx, &r, payments.Refusal(payments.ReasonUnknownPayment, "there is no such payment"), record)
	}
	if record.Payment.Outcome == payments.Waiting {
		return record, pipeline.Errorf(pipeline.KindUnavailable,
			"the payment waits for its order, which is not stored yet; report its refund again")
	}
	r.Payment, r.PaymentID = record.Payment.ID, record.Payment.PaymentID
	decision := r.Decide(&record.Payment)
	if decision.Outcome != payments.Refused {
		if err := d.apply(ctx, &r, decision.Outcome, &record); err != nil {
			return record, err
		}
	}
	return d.insert(ctx, &r, decision, record)
}

func (d *refundTx) refuse(
	ctx context.Context, r payments.Refund, why payments.Decision,
) (payments.RefundRecord, error) {
	record, _, err := d.known(ctx, &r)
	if err != nil || record.Replayed {
		return record, err
	}
	r.Payment = 0 // not looked at
	return d.insert(ctx, &r, why, record)
}

// known returns what is recorded of the same message, as the record, and of the same refund; nil where nothing is.
func (d *refundTx) known(
	ctx context.Context, r *payments.Refund,
) (record payments.RefundRecord, same *payments.Refund, err error) {
	if _, err := d.tx.Exec(ctx, refundLockQuery, r.RefundID); err != nil {
		return record, nil, err
	}
	rows, err := d.tx.Query(ctx, knownRefundQuery, optionalText(r.WebhookID), r.RefundID)
	if err != nil {
		return record, nil, err
	}
	known, err := pgx.CollectRows(rows, scanRefund)
	for i := range known {
		if known[i].WebhookID != "" && known[i].WebhookID == r.WebhookID {
			record.Refund, record.Replayed = known[i], true
		} else {
			same = &known[i]
		}
	}
	return record, same, err
}

// lockPayment finds the payment, and locks its order and then itself, in the order in which payments do. The payment
// remains zero where there is none.
func (d *refundTx) lockPayment(ctx context.Context, r *payments.Refund, record *payments.RefundRecord) error {
	found, err := d.payment(ctx, r)
	if err != nil || found.ID == 0 {
		return err
	}
	if _, err := d.tx.Exec(ctx, payableQuery, found.SaleID, found.OrderID); err != nil {
		return err
	}
	record.Payment, err = d.payment(ctx, r, found.SaleID)
	return err
}

// payment finds the payment of a refund. With its sale it also locks it.
func (d *refundTx) payment(ctx context.Context, r *payments.Refund, sale ...any) (payments.Payment, error) {
	query, name := paymentByNameQuery, any(r.PaymentID)
	if r.Payment > 0 {
		query, name = paymentByIDQuery, r.Payment
	}
	if len(sale) > 0 {
		query += lockPayment
	}
	rows, err := d.tx.Query(ctx, query, append([]any{name}, sale...)...)
	if err != nil {
		return payments.Payment{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPayment)
	if errors.Is(err, pgx.ErrNoRows) {
		return payments.Payment{}, nil
	}
	return p, err
}

// repeat answers the report of a refund that is known: it is a repetition, or a contradiction.
func (d *refundTx) repeat(
	ctx context.Context, r, known *payments.Refund, record payments.RefundRecord,
) (payments.RefundRecord, error) {
	if !r.SameAs(known) {
		return d.insert(ctx, r, payments.Refusal(payments.ReasonRefundReused,
			"refund %s was reported before, of another payment or amount", r.RefundID), record)
	}
	record.Refund = *known
	record.Refund.Outcome = payments.Repeated
	return record, nil
}

// apply changes the payment and, once nothing of its money is left to be paid back, the order.
func (d *refundTx) apply(
	ctx context.Context, r *payments.Refund, outcome payments.Outcome, record *payments.RefundRecord,
) error {
	becomes := payments.RefundDue
	if outcome == payments.Refunded {
		becomes = payments.Refunded
	}
	was := record.Payment
	d.before = &was
	rows, err := d.tx.Query(ctx, refundPaymentQuery, record.Payment.ID, becomes, r.Amount, was.SaleID)
	if err != nil {
		return err
	}
	if record.Payment, err = pgx.CollectExactlyOneRow(rows, scanPayment); err != nil || becomes != payments.Refunded {
		return err
	}
	p := &record.Payment
	rows, err = d.tx.Query(ctx, refundOrderQuery, p.SaleID, p.OrderID, statuses(pipeline.StatusRefunded.Before()))
	if err != nil {
		return err
	}
	changed, err := pgx.CollectRows(rows, scanOrder)
	if len(changed) == 1 {
		record.Order, record.Changed = changed[0], true
	}
	return err
}

func (d *refundTx) insert(
	ctx context.Context, r *payments.Refund, decision payments.Decision, record payments.RefundRecord,
) (payments.RefundRecord, error) {
	said := map[string]any{
		"refund_id": r.RefundID, "payment": record.Payment.ID, "payment_id": r.PaymentID,
		"order_id": record.Payment.OrderID, "amount": r.Amount, "currency": r.Currency, "partial": r.Partial,
		"outcome": decision.Outcome, "reason": decision.Reason, "note": r.Note,
	}
	if d.before != nil {
		state := func(p *payments.Payment) map[string]any {
			return map[string]any{"outcome": p.Outcome, "refunded_amount": p.RefundedAmount}
		}
		said["before"], said["after"] = state(d.before), state(&record.Payment)
	}
	detail, err := json.Marshal(said)
	if err != nil {
		return record, err
	}
	rows, err := d.tx.Query(ctx, insertRefundQuery, r.WebhookID, r.RefundID, record.Payment.ID, r.PaymentID, r.Amount,
		r.Currency, r.Partial, decision.Outcome, decision.Reason, decision.Detail, r.Note, r.Actor, record.Payment.SaleID,
		string(detail))
	if err != nil {
		return record, err
	}
	record.Refund, err = pgx.CollectExactlyOneRow(rows, scanRefund)
	return record, err
}

func scanRefund(row pgx.CollectableRow) (payments.Refund, error) {
	var r payments.Refund
	err := row.Scan(&r.ID, &r.WebhookID, &r.RefundID, &r.Payment, &r.PaymentID, &r.Amount, &r.Currency, &r.Partial,
		&r.Outcome, &r.Reason, &r.Detail, &r.Note, &r.Actor, &r.ReceivedAt)
	r.ReceivedAt = r.ReceivedAt.UTC()
	return r, err
}
