package db

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// letterQuery writes a letter once. It relies on dead_letters_entry_key.
const letterQuery = `
insert into dead_letters (partition, entry_id, sale_id, order_id, payload, reason, error, deliveries)
values ($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8)
on conflict do nothing`

// rejectQuery writes the row of an accept that can't stand: every accept ends as exactly one row. An order that has a
// row already keeps it. A number that is taken ($11) is left out: the letter has it. Nothing is written for a sale that
// Postgres lacks, or whose orders are dropped.
const rejectQuery = `
insert into orders (
	sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, key_hash, status, reason, closed_at)
select s.id, $2::text::uuid, case when $11::boolean then null else $3::bigint end,
	$4, $5, $6, $7, $8, $10, 'rejected', $9, now()
from sales s where s.id = $1 and s.orders_dropped_at is null
on conflict do nothing`

// giveBackQuery owes the accept's units and slot to Redis, unless they are those of a live order, which keeps them.
const giveBackQuery = `
insert into releases (sale_id, order_id, sequence, user_id, quantity, partition, reason)
select s.id, $2::text::uuid, $3, $4, $5, $6, $7
from sales s
where s.id = $1 and s.orders_dropped_at is null and not exists (
	select 1 from orders
	where sale_id = $1 and id = $2::text::uuid and status in ('awaiting_payment', 'confirmed', 'paid')
)
on conflict do nothing`

// raiseWatermarkQuery counts the accept as accounted for.
const raiseWatermarkQuery = `
insert into watermarks as w (sale_id, partition, seq)
select id, $2, $3 from sales where id = $1 and orders_dropped_at is null
on conflict (sale_id, partition) do update set seq = greatest(w.seq, excluded.seq), updated_at = excluded.updated_at`

// BuryEvent makes a dead letter of a stream entry, all in one transaction: the letter, and where the entry could be
// read, the rejected order and the release of what it took. Doing it again changes nothing.
//
// Errors: KindData when Postgres refuses the event's own values: then bury it without the event; KindUnavailable.
func (s *Store) BuryEvent(ctx context.Context, letter deadletter.Message, event *pipeline.Event) error {
	payload, err := json.Marshal(letterFields(letter.Payload))
	if err != nil {
		return pipeline.Wrap(pipeline.KindData, err, "dead letter: payload")
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	err = s.transaction(ctx, func(tx pgx.Tx) error { return bury(ctx, tx, letter, string(payload), event) })
	return wrap(err, "bury an event")
}

// bury writes all of it in a transaction.
func bury(ctx context.Context, tx pgx.Tx, letter deadletter.Message, payload string, event *pipeline.Event) error {
	batch := &pgx.Batch{}
	batch.Queue(letterQuery, letter.Partition, letter.EntryID, letterText(letter.SaleID), letterText(letter.OrderID),
		payload, letter.Reason, letterText(letter.Error), letter.Deliveries)
	if event != nil {
		taken, err := collect(ctx, tx, pgx.RowTo[int64], takenNumbersQuery, []int64{event.Number})
		if err != nil {
			return err
		}
		queueRejection(batch, event, letter.Reason, len(taken) > 0)
	}
	batch.Queue(confirmQuery) // where all of it was written before, and maybe not confirmed
	return tx.SendBatch(ctx, batch).Close()
}

func queueRejection(batch *pgx.Batch, e *pipeline.Event, reason string, numberTaken bool) {
	batch.Queue(rejectQuery,
		e.SaleID, e.OrderID, e.Number, e.UserID, e.Quantity, e.Partition, e.Sequence, e.AcceptedAt, reason, e.KeyHash,
		numberTaken)
	batch.Queue(giveBackQuery, e.SaleID, e.OrderID, e.Sequence, e.UserID, e.Quantity, e.Partition, reason)
	// An accept that Redis has lost is not one that it must have.
	if reason != deadletter.RedisLost {
		batch.Queue(raiseWatermarkQuery, e.SaleID, e.Partition, e.Sequence)
	}
}
