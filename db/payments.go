package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const (
	paymentColumns = `id, coalesce(webhook_id, ''), payment_id, sale_id, coalesce(order_id::text, ''), user_id,
	coalesce(amount, 0), coalesce(currency, ''), outcome, reason, detail, order_status, actor, received_at, decided_at`

	// paymentLockQuery lets tellers of the same money pass one by one. It is a statement of its own: what is read after it
	// was committed before.
	paymentLockQuery = `select pg_advisory_xact_lock(hashtextextended('sluice:payment:' || $1, 0))`

	// knownPaymentQuery finds the record of the same message, and that of the same money. It relies on
	// payments_webhook_id_key and payments_money_key.
	knownPaymentQuery = `
select ` + paymentColumns + ` from payments where webhook_id = $1
union
select ` + paymentColumns + ` from payments where payment_id = $2 and outcome in ('waiting', 'paid', 'refund_due')`

	// payableQuery takes the order's row until the transaction ends: whoever cancels or expires it meanwhile waits, or
	// leaves it alone.
	payableQuery = orderQuery + ` for no key update`

	payQuery = `
update orders set status = $3, paid_at = now(), payment_id = $4
where sale_id = $1 and id = $2::text::uuid and status = any($5::text[])
returning ` + orderColumns

	notePaymentQuery = `
with noted as (
	insert into payments (webhook_id, payment_id, sale_id, order_id, user_id, amount, currency, outcome, reason, detail,
		order_status, actor, decided_at)
	values (nullif($1, ''), $2, $3, nullif($4, '')::uuid, $5, nullif($6::bigint, 0), nullif($7, ''), $8, $9, $10, $11, $12,
		case when $8 <> 'waiting' then now() end)
	returning *
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select actor, 'pay', nullif(sale_id, ''), $13::text::jsonb from noted where $14
)
select ` + paymentColumns + ` from noted`

	// paymentRounds bounds how often a payment starts again because another one with its webhook id came in between.
	paymentRounds = 3
)

// RecordPayment decides a payment and records it, in one transaction with what it does to its order. It may be called any
// number of times, also at once: a webhook that is known gets what became of it, and money that is known counts once. Where
// the order has no row, or sale is nil, absent decides; without an Outcome there nothing is recorded. Errors:
// KindUnavailable; KindData for values that Postgres refuses.
func (s *Store) RecordPayment(
	ctx context.Context, payment pipeline.Payment, sale *pipeline.Sale, absent pipeline.PaymentDecision,
) (pipeline.PaymentRecord, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var record pipeline.PaymentRecord
	var err error
	for range paymentRounds {
		record, err = retryCollisions(ctx, func() (pipeline.PaymentRecord, error) {
			return s.recordPayment(ctx, payment, sale, absent)
		})
		if !breaks(err, "payments_webhook_id_key") {
			break
		}
	}
	return record, wrap(err, "record a payment")
}

func (s *Store) recordPayment(
	ctx context.Context, p pipeline.Payment, sale *pipeline.Sale, absent pipeline.PaymentDecision,
) (record pipeline.PaymentRecord, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		record = pipeline.PaymentRecord{}
		if _, err := tx.Exec(ctx, paymentLockQuery, p.PaymentID); err != nil {
			return err
		}
		message, money, err := knownPayment(ctx, tx, &p)
		if err != nil {
			return err
		}
		if message != nil {
			record.Payment, record.Replayed = *message, true
			return nil
		}
		decision := absent
		switch {
		case sale == nil:
		case money != nil:
			decision = againstKnown(&p, money)
			p.OrderStatus = money.OrderStatus
		default:
			if decision, err = s.payOrder(ctx, tx, &p, sale, absent, &record); err != nil {
				return err
			}
		}
		if decision.Outcome == "" {
			return nil
		}
		record.Payment, err = notePayment(ctx, tx, &p, decision)
		return err
	})
	return record, err
}

// knownPayment returns what is recorded of the same message, and of the same money; nil where nothing is.
func knownPayment(ctx context.Context, tx pgx.Tx, p *pipeline.Payment) (message, money *pipeline.Payment, err error) {
	rows, err := tx.Query(ctx, knownPaymentQuery, optionalText(p.WebhookID), p.PaymentID)
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

// againstKnown decides a payment whose money is known: it is the same story again, or a contradiction.
func againstKnown(p, known *pipeline.Payment) pipeline.PaymentDecision {
	sameAmount := p.Amount == known.Amount && p.Currency == known.Currency || p.Amount == 0 || known.Amount == 0
	if p.SaleID != known.SaleID || p.OrderID != known.OrderID || !sameAmount {
		return pipeline.Refusal(pipeline.ReasonPaymentReused, "payment %s was told of before, with another order or amount", p.PaymentID)
	}
	return pipeline.PaymentDecision{Outcome: pipeline.PaymentRepeated}
}

// payOrder decides a payment by its order, whose row it holds from then on, and changes the order accordingly.
func (s *Store) payOrder(
	ctx context.Context, tx pgx.Tx, p *pipeline.Payment, sale *pipeline.Sale, absent pipeline.PaymentDecision, record *pipeline.PaymentRecord,
) (pipeline.PaymentDecision, error) {
	rows, err := tx.Query(ctx, payableQuery, p.SaleID, p.OrderID)
	if err != nil {
		return absent, err
	}
	record.Order, err = pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		record.Order = pipeline.Order{}
		if absent.Outcome == pipeline.PaymentWaiting {
			p.OrderStatus = pipeline.StatusQueued
		}
		return absent, nil
	}
	if err != nil {
		return absent, err
	}
	decision := p.Decide(sale, &record.Order)
	if decision.Becomes != "" {
		rows, err := tx.Query(ctx, payQuery, p.SaleID, p.OrderID, decision.Becomes, p.PaymentID, statuses(decision.Becomes.Before()))
		if err != nil {
			return decision, err
		}
		// The row is held since it was read: one that does not change now is a fault of the program.
		if record.Order, err = pgx.CollectExactlyOneRow(rows, scanOrder); err != nil {
			return decision, err
		}
		record.Changed = true
	}
	if decision.Reason != pipeline.ReasonForeignOrder { // how a stranger's order stands is not told
		p.OrderStatus = record.Order.Status
	}
	return decision, nil
}

func notePayment(ctx context.Context, tx pgx.Tx, p *pipeline.Payment, d pipeline.PaymentDecision) (pipeline.Payment, error) {
	detail, err := json.Marshal(map[string]any{
		"order_id": p.OrderID, "payment_id": p.PaymentID, "amount": p.Amount, "currency": p.Currency,
		"outcome": d.Outcome, "reason": d.Reason, "order_status": p.OrderStatus,
	})
	if err != nil {
		return *p, err
	}
	rows, err := tx.Query(ctx, notePaymentQuery, p.WebhookID, p.PaymentID, p.SaleID, p.OrderID, p.UserID, p.Amount, p.Currency,
		d.Outcome, d.Reason, d.Detail, p.OrderStatus, p.Actor, string(detail), p.Actor != pipeline.WebhookActor)
	if err != nil {
		return *p, err
	}
	return pgx.CollectExactlyOneRow(rows, scanPayment)
}

func scanPayment(row pgx.CollectableRow) (pipeline.Payment, error) {
	var p pipeline.Payment
	var decided *time.Time
	err := row.Scan(&p.ID, &p.WebhookID, &p.PaymentID, &p.SaleID, &p.OrderID, &p.UserID, &p.Amount, &p.Currency, &p.Outcome,
		&p.Reason, &p.Detail, &p.OrderStatus, &p.Actor, &p.ReceivedAt, &decided)
	p.ReceivedAt, p.DecidedAt = p.ReceivedAt.UTC(), timeOrZero(decided)
	return p, err
}
