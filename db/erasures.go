package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/erasure"
	"sluice/pipeline/idempotency"
)

const erasureColumns = `id, pseudonym, actor, requested_at, looked_at, waits_for, rows, finished_at`

func scanErasure(row pgx.CollectableRow) (e erasure.Erasure, err error) {
	var looked, finished *time.Time
	err = row.Scan(&e.ID, &e.Pseudonym, &e.Actor, &e.RequestedAt, &looked, &e.WaitsFor, &e.Rows, &finished)
	e.RequestedAt, e.LookedAt, e.FinishedAt = e.RequestedAt.UTC(), timeOrZero(looked), timeOrZero(finished)
	return e, err
}

// salesOf lists the sales in which a buyer has an order or has waited, and whether Redis still has them. It looks into
// the indexes of buyers once for each sale.
func salesOf(userID string) string {
	return `
select every.id, every.retired_at is null or every.cleared_in is null as in_redis
from sales every
where exists (` + ordersOfBuyer(userID) + `)
	or exists (select from waitlist w where w.sale_id = every.id and w.user_id = ` + userID + `)`
}

// RequestErasure notes that a buyer is to be erased, and writes a line into the audit log, without the id. While an
// erasure of the same buyer is under way, that one is returned. Errors: KindInvalid, KindUnavailable.
func (s *Store) RequestErasure(ctx context.Context, userID, actor string) (erasure.Erasure, error) {
	if err := pipeline.ValidateUserID(userID); err != nil {
		return erasure.Erasure{}, err
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	if idempotency.Done(ctx) {
		done, err := doneDetail[struct{ Erasure int64 }](ctx, s)
		if err != nil {
			return erasure.Erasure{}, err
		}
		return s.Erasure(ctx, done.Erasure)
	}
	// The update changes nothing, but returns the row that is there. Each request is a line in the log.
	e, err := queryOne(ctx, s, "erase a buyer", scanErasure, `
		with asked as (
			insert into buyer_erasures as b (user_id, actor) values ($1, $2)
			on conflict (user_id) where user_id is not null do update set actor = b.actor
			returning `+erasureColumns+`
		), logged as (
			insert into audit_log (actor, action, detail)
			select $2, 'erase-buyer', jsonb_build_object('erasure', id, 'pseudonym', pseudonym) from asked
		)
		select * from asked`, userID, actor)
	if err != nil {
		return e, err
	}
	const query = `select count(*) filter (where in_redis) from (`
	e.WaitsFor, err = queryValue[int](ctx, s, "sales of a buyer", query+salesOf("$1")+`) s`, userID)
	return e, err
}

// Erasure returns one erasure, or a KindNotFound error.
func (s *Store) Erasure(ctx context.Context, id int64) (erasure.Erasure, error) {
	e, err := queryOne(ctx, s, "an erasure", scanErasure,
		`select `+erasureColumns+` from buyer_erasures where id = $1`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = pipeline.Errorf(pipeline.KindNotFound, "there is no erasure %d", id)
	}
	return e, err
}

// Erasures returns up to limit erasures, the newest first, with ids below before; 0: all.
func (s *Store) Erasures(ctx context.Context, before int64, limit int) ([]erasure.Erasure, error) {
	return queryAll(ctx, s, "erasures", scanErasure, `
		select `+erasureColumns+` from buyer_erasures where $1 = 0 or id < $1 order by id desc limit $2`,
		before, min(limit, erasure.MaxListed))
}

// PendingErasures returns up to limit erasures of which something is left, with ids greater than after.
func (s *Store) PendingErasures(ctx context.Context, after int64, limit int) ([]erasure.Erasure, error) {
	return queryAll(ctx, s, "pending erasures", scanErasure, `
		select `+erasureColumns+` from buyer_erasures where user_id is not null and id > $1 order by id limit $2`,
		after, limit)
}
