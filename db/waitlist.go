package db

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const stayColumns = `sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash, joined_at, left_at`

// noteJoinQuery writes a stay once, as long as the generation is the one in which Redis was asked. The next one can't begin
// before this is over (00007_generation.sql). Whoever has left already stays so.
const noteJoinQuery = `
with fence as (
	select from join_generation() as number where number = $1
), noted as (
	insert into waitlist (sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash, joined_at)
	select $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11 from fence
	on conflict on constraint waitlist_pkey do nothing
)
select count(*) from fence`

// NoteJoin notes a stay in a waitlist; noting it again changes nothing. Errors: pipeline.ErrStaleGeneration, KindData,
// KindUnavailable.
func (s *Store) NoteJoin(ctx context.Context, generation pipeline.Generation, stay pipeline.Stay) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var current int
	err := s.pool.QueryRow(ctx, noteJoinQuery, stayArguments(generation, stay)...).Scan(&current)
	if err == nil && current == 0 {
		return pipeline.ErrStaleGeneration
	}
	return wrap(err, "note a stay in the waitlist")
}

// noteLeaveQuery ends a stay, unless its order was made. It writes the stay where whoever joined has not noted it yet: what
// comes later finds that it has ended. orders_pkey and waitlist_pkey serve it.
const noteLeaveQuery = `
with fence as (
	select from join_generation() as number where number = $1
), noted as (
	insert into waitlist as w (
		sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash, joined_at, left_at, left_ticket)
	select $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11, now(), $12::bigint from fence
	where not exists (select from orders where sale_id = $2 and id = $3::text::uuid)
	on conflict on constraint waitlist_pkey do update
	set left_at = coalesce(w.left_at, excluded.left_at), left_ticket = greatest(w.left_ticket, excluded.left_ticket)
	returning order_id
)
select (select count(*) from fence), (select count(*) from noted)`

// NoteLeave notes that a stay has ended, with the ticket that the leave took; noting it again changes nothing but the
// ticket, to a higher one. It returns false where the stay's order was made. Errors: pipeline.ErrStaleGeneration, KindData,
// KindUnavailable.
func (s *Store) NoteLeave(ctx context.Context, generation pipeline.Generation, stay pipeline.Stay, ticket int64) (bool, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var current, noted int
	err := s.pool.QueryRow(ctx, noteLeaveQuery, append(stayArguments(generation, stay), ticket)...).Scan(&current, &noted)
	if err == nil && current == 0 {
		return false, pipeline.ErrStaleGeneration
	}
	return noted > 0, wrap(err, "note a leave of the waitlist")
}

func stayArguments(generation pipeline.Generation, s pipeline.Stay) []any {
	return []any{
		generation, s.SaleID, s.OrderID, s.UserID, s.Number, s.Quantity, s.Partition, s.Ticket, s.KeyHash, s.PayloadHash, s.JoinedAt,
	}
}

var errNoStay = pipeline.Errorf(pipeline.KindNotFound, "you don't wait for units of this sale")

// latestStayQuery relies on waitlist_buyer_idx.
const latestStayQuery = `
select ` + stayColumns + ` from waitlist where sale_id = $1 and user_id = $2 order by ticket desc limit 1`

// LatestStay returns a buyer's latest stay in the waitlist of a sale, or a KindNotFound error.
func (s *Store) LatestStay(ctx context.Context, saleID, userID string) (pipeline.Stay, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, latestStayQuery, saleID, userID)
	if err != nil {
		return pipeline.Stay{}, wrap(err, "stay in the waitlist")
	}
	stay, err := pgx.CollectExactlyOneRow(rows, scanStay)
	if errors.Is(err, pgx.ErrNoRows) {
		return pipeline.Stay{}, errNoStay
	}
	return stay, wrap(err, "stay in the waitlist")
}

// inWaitlistQuery lists who waits: the latest stay of a buyer, if he did not leave, it has no order, and he has no other live
// one. waitlist_ticket_key gives the order; waitlist_buyer_idx, orders_pkey and orders_live_buyer_key answer the rest.
const inWaitlistQuery = `
select ` + stayColumns + ` from waitlist w
where sale_id = $1 and partition = $2 and left_at is null
and not exists (select from waitlist n where n.sale_id = w.sale_id and n.user_id = w.user_id and n.ticket > w.ticket)
and not exists (select from orders o where o.sale_id = w.sale_id and o.id = w.order_id)
and not exists (
	select from orders o where o.sale_id = w.sale_id and o.user_id = w.user_id
	and o.status in ('awaiting_payment', 'confirmed', 'paid')
)
order by ticket`

// Waiting calls each for every person who waits for a sale on a partition, in the order of tickets and as the rows arrive.
// The order of some may be on its way to Postgres. An error of the callback ends it and is returned as it is.
func (s *Store) Waiting(ctx context.Context, saleID string, p pipeline.Partition, each func(pipeline.Stay) error) error {
	ctx, cancel := deadline(ctx, ledgerTimeout)
	defer cancel()
	var interrupted error
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := allowLong(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, inWaitlistQuery, saleID, p)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			stay, err := scanStay(rows)
			if err != nil {
				return err
			}
			if interrupted = each(stay); interrupted != nil {
				return interrupted
			}
		}
		return rows.Err()
	})
	if interrupted != nil {
		return interrupted
	}
	return wrap(err, "who waits for sale "+saleID)
}

func scanStay(row pgx.CollectableRow) (pipeline.Stay, error) {
	var stay pipeline.Stay
	var id uuid.UUID
	var left *time.Time
	err := row.Scan(&stay.SaleID, &id, &stay.UserID, &stay.Number, &stay.Quantity, &stay.Partition, &stay.Ticket, &stay.KeyHash,
		&stay.PayloadHash, &stay.JoinedAt, &left)
	stay.OrderID, stay.JoinedAt, stay.LeftAt = id.String(), stay.JoinedAt.UTC(), timeOrZero(left)
	return stay, err
}
