package db

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
)

const waitlistColumns = `sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash,
	joined_at, left_at`

// recordJoinQuery writes an entry once, as long as the generation is the one in which Redis was asked. The next one
// can't begin before this is over (00007_generation.sql). An entry that has ended already stays ended.
const recordJoinQuery = `
with fence as (
	select number from join_generation() as number where number = $1
), recorded as (
	insert into waitlist (
		sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash, joined_at)
	select $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11 from fence
	on conflict on constraint waitlist_pkey do nothing
	returning order_id
)
select (select count(*) from fence), (select count(*) from recorded)`

// RecordJoin records an entry of a waitlist; recording it again changes nothing. Errors: pipeline.ErrStaleGeneration,
// KindData, KindUnavailable.
func (s *Store) RecordJoin(ctx context.Context, generation pipeline.Generation, entry pipeline.WaitlistEntry) error {
	current, recorded, err := s.recordWaitlist(ctx, recordJoinQuery, waitlistArguments(generation, entry)...)
	switch {
	case err != nil:
		return wrap(err, "record a waitlist entry")
	case current == 0:
		return pipeline.ErrStaleGeneration
	case recorded == 0: // it was before
		return s.confirm(ctx)
	}
	return nil
}

// recordWaitlist runs a statement that returns whether the generation is the current one, and whether it wrote a row.
func (s *Store) recordWaitlist(ctx context.Context, query string, args ...any) (current, recorded int, err error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	current, err = retryTwins(ctx, func() (current int, err error) {
		err = s.pool.QueryRow(ctx, query, args...).Scan(&current, &recorded)
		return current, err
	})
	return current, recorded, err
}

// recordLeaveQuery ends an entry, unless its order was made. It writes the entry where the join is not recorded yet: a
// join that comes later finds that the entry has ended. orders_pkey and waitlist_pkey serve it.
const recordLeaveQuery = `
with fence as (
	select number from join_generation() as number where number = $1
), recorded as (
	insert into waitlist as w (
		sale_id, order_id, user_id, number, quantity, partition, ticket, key_hash, payload_hash, joined_at,
		left_at, left_ticket)
	select $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11, now(), $12::bigint from fence
	where not exists (select from orders where sale_id = $2 and id = $3::text::uuid)
	on conflict on constraint waitlist_pkey do update
	set left_at = coalesce(w.left_at, excluded.left_at), left_ticket = greatest(w.left_ticket, excluded.left_ticket)
	returning order_id
)
select (select count(*) from fence), (select count(*) from recorded)`

// RecordLeave records that a waitlist entry has ended, with the ticket that the leave took; recording it again changes
// nothing but the ticket, to a higher one. It returns false where the order of the entry was made. Errors:
// pipeline.ErrStaleGeneration, KindData, KindUnavailable.
func (s *Store) RecordLeave(
	ctx context.Context, generation pipeline.Generation, entry pipeline.WaitlistEntry, ticket int64,
) (bool, error) {
	args := append(waitlistArguments(generation, entry), ticket)
	current, recorded, err := s.recordWaitlist(ctx, recordLeaveQuery, args...)
	switch {
	case err != nil:
		return false, wrap(err, "record a leave of the waitlist")
	case current == 0:
		return false, pipeline.ErrStaleGeneration
	case recorded == 0: // its order was made
		return false, s.confirm(ctx)
	}
	return true, nil
}

// leftQuery relies on waitlist_pkey: one lookup for each id.
const leftQuery = `
select w.order_id::text from unnest($2::text[]) as i (id)
join waitlist w on w.sale_id = $1 and w.order_id = i.id::uuid
where w.left_at is not null`

// LeftWaitlist returns those of some ids of orders that belong to entries of a waitlist whose buyers have left it.
func (s *Store) LeftWaitlist(ctx context.Context, saleID string, orderIDs []string) (map[string]bool, error) {
	return s.which(ctx, "left waitlist entries", leftQuery, saleID, orderIDs)
}

func waitlistArguments(generation pipeline.Generation, e pipeline.WaitlistEntry) []any {
	return []any{
		generation, e.SaleID, e.OrderID, e.UserID, e.Number, e.Quantity, e.Partition, e.Ticket, e.KeyHash, e.PayloadHash,
		e.JoinedAt,
	}
}

var errNotWaiting = pipeline.Errorf(pipeline.KindNotFound, "you don't wait for units of this sale")

// latestEntryQuery relies on waitlist_buyer_idx.
const latestEntryQuery = `
select ` + waitlistColumns + ` from waitlist where sale_id = $1 and user_id = $2 order by ticket desc limit 1`

// LatestWaitlistEntry returns a buyer's latest entry in the waitlist of a sale, or a KindNotFound error.
func (s *Store) LatestWaitlistEntry(ctx context.Context, saleID, userID string) (pipeline.WaitlistEntry, error) {
	entry, err := queryOne(ctx, s, "waitlist entry", scanWaitlistEntry, latestEntryQuery, saleID, userID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNotWaiting
	}
	return entry, err
}

// entryQuery relies on waitlist_pkey.
const entryQuery = `select ` + waitlistColumns + ` from waitlist where sale_id = $1 and order_id = $2::text::uuid`

// WaitlistEntry returns the entry of the waitlist of a sale from which an order was or will be made, or a KindNotFound
// error.
func (s *Store) WaitlistEntry(ctx context.Context, saleID, orderID string) (pipeline.WaitlistEntry, error) {
	id, err := uuid.Parse(orderID)
	if err != nil {
		return pipeline.WaitlistEntry{}, errNotWaiting
	}
	entry, err := queryOne(ctx, s, "waitlist entry", scanWaitlistEntry, entryQuery, saleID, id.String())
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNotWaiting
	}
	return entry, err
}

// waitlistQuery lists the buyers who wait: the latest entry of each, if it has not ended, has no order, and the buyer
// has no other live order. waitlist_ticket_key gives the order; waitlist_buyer_idx, orders_pkey and
// orders_live_buyer_key answer the rest.
const waitlistQuery = `
select ` + waitlistColumns + ` from waitlist w
where sale_id = $1 and partition = $2 and left_at is null
and not exists (select from waitlist n where n.sale_id = w.sale_id and n.user_id = w.user_id and n.ticket > w.ticket)
and not exists (select from orders o where o.sale_id = w.sale_id and o.id = w.order_id)
and not exists (
	select from orders o where o.sale_id = w.sale_id and o.user_id = w.user_id
	and o.status in ('awaiting_payment', 'confirmed', 'paid')
)
order by ticket`

// EachWaitlistEntry calls each for every entry of a sale's waitlist on a partition, in the order of tickets and as the
// rows arrive. The order of some may be on its way to Postgres. An error of the callback ends it and is returned as it
// is.
func (s *Store) EachWaitlistEntry(
	ctx context.Context, saleID string, p pipeline.Partition, each func(pipeline.WaitlistEntry) error,
) error {
	return s.snapshot(ctx, "waitlist of sale "+saleID, func(ctx context.Context, tx pgx.Tx) error {
		var row waitlistRow
		return stream(ctx, tx, row.into(), func() error { return each(row.read()) }, waitlistQuery, saleID, p)
	})
}

// waitlistRow takes waitlistColumns.
type waitlistRow struct {
	entry pipeline.WaitlistEntry
	id    uuid.UUID
	left  *time.Time
}

func (r *waitlistRow) into() []any {
	e := &r.entry
	return []any{
		&e.SaleID, &r.id, &e.UserID, &e.Number, &e.Quantity, &e.Partition, &e.Ticket, &e.KeyHash, &e.PayloadHash, &e.JoinedAt,
		&r.left,
	}
}

func (r *waitlistRow) read() pipeline.WaitlistEntry {
	r.entry.OrderID, r.entry.JoinedAt, r.entry.LeftAt = r.id.String(), r.entry.JoinedAt.UTC(), timeOrZero(r.left)
	return r.entry
}

func scanWaitlistEntry(row pgx.CollectableRow) (pipeline.WaitlistEntry, error) {
	var r waitlistRow
	err := row.Scan(r.into()...)
	return r.read(), err
}
