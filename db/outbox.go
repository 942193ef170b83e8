package db

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/webhook"
)

// SequenceEvents gives positions to up to limit committed events and returns how many got one; 0 also when another
// process is doing it (00010_outbox.sql describes how).
func (s *Store) SequenceEvents(ctx context.Context, limit int) (int, error) {
	return queryValue[int](ctx, s, "sequence events", `select sequence_outbox($1)`, limit)
}

// AnnounceSalePhases writes the events of up to limit sales that opened or closed by time, and returns how many changed
// their phase (00019_sale_events.sql describes how). Errors: KindUnavailable.
func (s *Store) AnnounceSalePhases(ctx context.Context, limit int) (int, error) {
	return queryValue[int](ctx, s, "announce sales", `select announce_sale_phases($1)`, limit)
}

// nextEventsQuery relies on outbox_position_key.
const nextEventsQuery = `
select position, event_id::text, type, sale_id, coalesce(order_id::text, ''), created_at,
	case when coalesce(cardinality($2::text[]), 0) = 0 or type = any($2) then data::text end
from outbox
where position > $1
order by position limit $3`

// NextEvents returns up to limit events after a position, in the order of positions. Those of a type that is not among
// types, unless that is empty, come without data.
func (s *Store) NextEvents(ctx context.Context, after int64, types []string, limit int) ([]webhook.Event, error) {
	return queryConfirmed(ctx, s, "next events", func(row pgx.CollectableRow) (webhook.Event, error) {
		var e webhook.Event
		var data *string
		err := row.Scan(&e.Position, &e.ID, &e.Type, &e.SaleID, &e.OrderID, &e.CreatedAt, &data)
		if data != nil {
			e.Data = []byte(*data)
		}
		return e, err
	}, nextEventsQuery, after, types, limit)
}

// isDue is true of an endpoint e that is enabled, to be tried by now, and not claimed. A lease ($1), or a pause after a
// failure ($2), that is longer than any, or that began in the future, is of a clock that is set back since.
const isDue = `e.disabled_at is null
		and (e.next_attempt_at <= now() or e.next_attempt_at > now() + $2::interval
			or e.failing_since > now() + interval '1 minute')
		and (e.leased_until is null or e.leased_until <= now() or e.leased_until > now() + $1::interval)`

// dueEndpointsQuery finds those of which there is anything to deliver. It reads all endpoints, which are few.
var dueEndpointsQuery = `
select id from endpoints e
where ` + isDue + ` and (cursor < (select max(position) from outbox where position is not null)
	or exists (select from resends r where r.endpoint_id = e.id and ` + resendDue(`$2::interval`) + `))
order by next_attempt_at
limit $3`

// claimQuery claims some of them, as far as they still are due. What another process is claiming at this moment is
// skipped.
const claimQuery = `
with due as (
	select id from endpoints e where id = any($3::bigint[]) and ` + isDue + `
	for no key update skip locked
), e as (
	update endpoints e set lease = $4::text::uuid, leased_until = now() + $1::interval
	from due
	where e.id = due.id
	returning e.*
)
select e.id, e.url, e.types, e.attempts, e.cursor` + endpointSecrets + ` from e`

// ClaimEndpoints claims up to limit endpoints that have events to receive, are due and not claimed, for the time of a
// lease.
func (s *Store) ClaimEndpoints(ctx context.Context, limit int, lease time.Duration) ([]webhook.Claim, error) {
	due, err := queryAll(ctx, s, "due endpoints", pgx.RowTo[int64], dueEndpointsQuery, lease, webhook.MaxBackoff, limit)
	if err != nil || len(due) == 0 { // mostly
		return nil, err
	}
	token := uuid.NewString()
	return queryAll(ctx, s, "claim endpoints", func(row pgx.CollectableRow) (webhook.Claim, error) {
		c := webhook.Claim{Lease: token}
		err := row.Scan(&c.ID, &c.URL, &c.Types, &c.Attempts, &c.Cursor, &c.Secret, &c.PreviousSecret)
		return c, err
	}, claimQuery, lease, webhook.MaxBackoff, due, token)
}

// advanceQuery moves the cursor on condition of the lease. An endpoint that was disabled meanwhile keeps its progress.
// The times are computed before: Citus would have none of that in the update, here and below.
const advanceQuery = `
with clock as materialized (
	select now() as at, now() + $5::interval as until
)
update endpoints e set cursor = greatest(e.cursor, $3),
	delivered_at = case when $4 then c.at else e.delivered_at end,
	failing_since = case when not $4 then e.failing_since end,
	attempts = case when $4 then 0 else e.attempts end,
	last_error = case when $4 then '' else e.last_error end,
	lease = case when $5 > interval '0' then e.lease end,
	leased_until = case when $5 > interval '0' then c.until end
from clock c
where e.id = $1 and e.lease = $2::text::uuid
returning e.disabled_at is null`

// AdvanceEndpoint records what was delivered, and prolongs the claim or ends it. It returns false when the claim is
// lost, and when the endpoint was disabled or removed.
func (s *Store) AdvanceEndpoint(ctx context.Context, c *webhook.Claim, p webhook.Progress) (bool, error) {
	kept, err := queryAll(ctx, s, "record deliveries", pgx.RowTo[bool], advanceQuery,
		c.ID, c.Lease, p.Cursor, p.Delivered, p.Lease)
	return len(kept) == 1 && kept[0], err
}

// failQuery records a failure on condition of the lease, and disables an endpoint that is gone or has failed for too
// long. One of ours ends the series, or the time in which we could not deliver would count as the receiver's.
const failQuery = `
with claimed as (
	select id, case when $10 then null when $4 then now() else least(failing_since, now()) end as since,
		disabled_at is null as enabled
	from endpoints where id = $1 and lease = $2::text::uuid
	for no key update
), judged as materialized (
	select id, since, now() as at, case
		when not enabled then ''
		when $6 then $5
		when since <= now() - $9::interval then 'deliveries failed since ' || event_time(since) || '; the last error: ' || $5
		else '' end as reason
	from claimed
)
update endpoints e set cursor = greatest(e.cursor, $3),
	delivered_at = case when $4 then j.at else e.delivered_at end,
	failing_since = j.since, attempts = $7, last_error = $5, next_attempt_at = now() + $8,
	disabled_at = case when j.reason <> '' then j.at else e.disabled_at end,
	disabled_reason = case when j.reason <> '' then j.reason else e.disabled_reason end,
	lease = null, leased_until = null
from judged j
where e.id = j.id
returning j.reason`

// FailEndpoint records what was delivered and then a failure, and ends the claim. It returns why the endpoint is
// disabled now, if this call disabled it. Nothing happens when the claim is lost.
func (s *Store) FailEndpoint(
	ctx context.Context, c *webhook.Claim, p webhook.Progress, f webhook.Failure,
) (string, error) {
	reasons, err := queryAll(ctx, s, "record a failed delivery", pgx.RowTo[string], failQuery,
		c.ID, c.Lease, p.Cursor, p.Delivered, f.Error, f.Gone, f.Attempts, f.Backoff, webhook.FailingLimit, f.Ours)
	if err != nil || len(reasons) == 0 {
		return "", err
	}
	return reasons[0], nil
}

// oldestEvents are the first in the order of positions, which is about that of age: each run reads a limited number.
const oldestEvents = `
	select id, position, type, created_at from outbox where position is not null order by position limit $1`

// pruneQuery drops what no endpoint is still to receive; a disabled endpoint counts.
const pruneQuery = `
with passed as (select min(cursor) as position from endpoints), old as (
	select o.id from (` + oldestEvents + `) o, passed
	where o.created_at < now() - $2::interval and (passed.position is null or o.position <= passed.position)
)
delete from outbox o using old where o.id = old.id`

// dropQuery drops what is too old, even if endpoints are still to receive it, and counts it as missed. It runs while
// the cursors are locked: a statement that waited for a row would count nothing for it.
const dropQuery = `
with old as (
	select id from (` + oldestEvents + `) o where created_at < now() - $2::interval
), dropped as (
	delete from outbox o using old where o.id = old.id returning o.position, o.type
), lost as (
	select e.id, count(*) as events
	from endpoints e join dropped d on d.position > e.cursor and (cardinality(e.types) = 0 or d.type = any(e.types))
	group by e.id
), counted as (
	update endpoints e set missed = e.missed + lost.events from lost where e.id = lost.id
)
select (select count(*) from dropped)::integer, coalesce((select sum(events) from lost), 0)::integer`

// PruneEvents drops events, up to limit for each of two reasons: no endpoint is still to receive them and they are
// older than keep, or they are older than webhook.KeepWaiting.
func (s *Store) PruneEvents(ctx context.Context, keep time.Duration, limit int) (webhook.Pruned, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	delivered, err := s.exec(ctx, "prune events", pruneQuery, limit, keep)
	if err != nil {
		return webhook.Pruned{}, err
	}
	pruned := webhook.Pruned{Events: int(delivered)}
	if _, err := s.exec(ctx, "forget secrets", forgetSecretsQuery); err != nil {
		return pruned, err
	}
	const lateQuery = `select exists (select 1 from (` + oldestEvents + `) o where created_at < now() - $2::interval)`
	late, err := queryValue[bool](ctx, s, "prune events", lateQuery, 1, webhook.KeepWaiting)
	if err != nil || !late {
		return pruned, err
	}
	dropped := webhook.Pruned{}
	err = s.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select from endpoints order by id for no key update`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, dropQuery, limit, webhook.KeepWaiting).Scan(&dropped.Events, &dropped.Missed)
	})
	pruned.Events, pruned.Missed = max(pruned.Events, dropped.Events), dropped.Missed
	return pruned, wrap(err, "prune events")
}
