package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
	"sluice/webhook"
)

const eventColumns = `o.position, o.event_id::text, o.type, o.sale_id, coalesce(o.order_id::text, ''), o.created_at,
	o.data::text`

// eventFilter chooses among the events that have a position. An empty value leaves out none.
const eventFilter = `
	($1 = '' or o.sale_id = $1) and ($2 = '' or o.order_id = nullif($2, '')::uuid) and ($3 = '' or o.type = $3)
	and ($4 = '' or o.event_id = nullif($4, '')::uuid)`

// eventsQuery relies on outbox_position_key, or on outbox_order_idx where an order is asked for.
const eventsQuery = `
select ` + eventColumns + ` from outbox o
where ` + eventFilter + `
	and ($5::timestamptz is null or created_at >= $5) and ($6::timestamptz is null or created_at < $6)
	and position > $7
order by position limit $8`

// Events returns the events that are kept and that a filter chooses, in the order of positions. Errors: KindInvalid,
// KindUnavailable.
func (s *Store) Events(ctx context.Context, filter webhook.EventFilter) ([]webhook.Event, error) {
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	return queryAll(ctx, s, "events", scanEventRow, eventsQuery, filter.SaleID, filter.OrderID, filter.Type, filter.EventID,
		optionalTime(filter.Since), optionalTime(filter.Until), filter.After, filter.Limit)
}

// scanEvent reads eventColumns, and what the query selects after them.
func scanEvent(row pgx.CollectableRow, more ...any) (webhook.Event, error) {
	var e webhook.Event
	var data string
	err := row.Scan(append([]any{&e.Position, &e.ID, &e.Type, &e.SaleID, &e.OrderID, &e.CreatedAt, &data}, more...)...)
	e.Data = []byte(data)
	return e, err
}

func scanEventRow(row pgx.CollectableRow) (webhook.Event, error) { return scanEvent(row) }

// resendQuery notes what an endpoint is to get once more: of what it has passed and wants. What it has not passed comes
// by itself, in its turn. The endpoint's row is locked against its removal and against a replay.
const resendQuery = `
with e as (
	select id, url, types, cursor from endpoints where id = $9 for no key update
), chosen as (
	select o.id, o.position from outbox o, e
	where ` + eventFilter + `
		and (cardinality(e.types) = 0 or o.type = any(e.types))
		and o.position between $5 and least($6, e.cursor)
	order by o.position limit $7
), noted as (
	insert into resends (endpoint_id, position, event)
	select e.id, c.position, c.id from chosen c, e
	on conflict on constraint resends_pkey do update set requests = resends.requests + 1, requested_at = now(),
		attempts = 0, failing_since = null, next_attempt_at = now()
), counted as (
	select count(*) as events, min(position) as oldest, max(position) as newest from chosen
), logged as (
	insert into audit_log (actor, action, sale_id, detail)
	select $8, 'resend-events', nullif($1, ''), jsonb_strip_nulls(jsonb_build_object(
		'endpoint', e.id, 'url', e.url, 'events', c.events, 'from', c.oldest, 'to', c.newest, 'order_id', nullif($2, ''),
		'type', nullif($3, ''), 'event_id', nullif($4, '')))
	from e, counted c where c.events > 0
)
select (select count(*) from e), events, coalesce(newest, 0) from counted`

// ResendEvents has an endpoint get some events once more, at most webhook.MaxResent at once, and returns how many and
// the last one's position. Asking again before a delivery has begun changes nothing. Errors: KindInvalid, KindNotFound,
// KindUnavailable.
func (s *Store) ResendEvents(
	ctx context.Context, actor string, id int64, r webhook.ResendRequest,
) (webhook.Resent, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	if idempotency.Done(ctx) {
		done, err := doneDetail[struct {
			Events int
			To     int64
		}](ctx, s)
		return webhook.Resent{Events: done.Events, Last: done.To, More: done.Events == webhook.MaxResent}, err
	}
	var endpoints int64
	resent, err := queryOne(ctx, s, "resend events", func(row pgx.CollectableRow) (r webhook.Resent, err error) {
		return r, row.Scan(&endpoints, &r.Events, &r.Last)
	}, resendQuery, r.SaleID, r.OrderID, r.Type, r.EventID, r.From, r.To, webhook.MaxResent, actor, id)
	if err == nil && endpoints == 0 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return webhook.Resent{}, endpointError(err, id)
	}
	resent.More = resent.Events == webhook.MaxResent
	return resent, nil
}

// replayQuery moves an endpoint's cursor back, and takes the claim from the worker that delivers to it: its progress
// would move the cursor on again. What was to be resent from there on comes by itself.
const replayQuery = `
with kept as (
	select min(position) as oldest from outbox
), e as (
	update endpoints e set cursor = $3::bigint - 1, lease = null, leased_until = null, next_attempt_at = now()
	from kept, (select cursor as passed from endpoints where id = $1 for no key update) before
	where e.id = $1 and $3 between kept.oldest and before.passed + 1 -- the same once more changes nothing
	returning e.id, e.url, e.cursor, before.passed
), dropped as (
	delete from resends r using e where r.endpoint_id = e.id and r.position > e.cursor
), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'replay-events', jsonb_build_object('endpoint', id, 'url', url, 'from', $3::bigint, 'to', passed) from e
)
select count(*) from e`

// ReplayEvents has an endpoint get everything from a position on once more. Errors: KindNotFound; KindConflict, where
// the events from there on are not kept any more, or the endpoint has not got that far; KindUnavailable.
func (s *Store) ReplayEvents(ctx context.Context, actor string, id, from int64) (webhook.Endpoint, error) {
	ctx, cancel := deadline(ctx, callTimeout) // for all statements
	defer cancel()
	if !idempotency.Done(ctx) {
		moved, err := queryValue[int](ctx, s, "replay events", replayQuery, id, actor, from)
		if err != nil {
			return webhook.Endpoint{}, err
		}
		if moved == 0 {
			return webhook.Endpoint{}, s.notReplayed(ctx, id, from)
		}
	}
	return s.endpointWithoutSecret(ctx, id)
}

// notReplayed says from where on an endpoint's events can be replayed.
func (s *Store) notReplayed(ctx context.Context, id, from int64) error {
	const query = `select coalesce((select min(position) from outbox), 0), cursor from endpoints where id = $1`
	var oldest, passed int64
	err := s.pool.QueryRow(ctx, query, id).Scan(&oldest, &passed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return endpointError(err, id)
	case err != nil:
		return wrap(err, "replay events")
	case oldest == 0 || oldest > passed+1:
		return pipeline.Errorf(pipeline.KindConflict, "no event is kept that endpoint %d has passed", id)
	}
	return pipeline.Errorf(pipeline.KindConflict,
		"endpoint %d can't begin again at position %d: use %d, the oldest event that is kept, to %d, the last one it has passed",
		id, from, oldest, passed)
}

// resendDue says of a row r of resends, and its endpoint e, that it may be tried now. longest is the parameter with the
// longest wait: one that is longer is of a clock that is set back since.
func resendDue(longest string) string {
	return `(r.next_attempt_at <= now() or r.next_attempt_at > now() + ` + longest + `)
	and (e.resends_after is null or e.resends_after <= now() or e.resends_after > now() + ` + longest + `)`
}

var nextResendsQuery = `
select ` + eventColumns + `, r.requests, r.attempts
from resends r join endpoints e on e.id = r.endpoint_id join outbox o on o.id = r.event
where r.endpoint_id = $1 and ` + resendDue(`$3::interval`) + `
order by r.next_attempt_at, r.position limit $2`

// NextResends returns up to limit events that an endpoint is to get once more and that are due. Those that have failed
// come last, the others in the order of positions.
func (s *Store) NextResends(ctx context.Context, endpointID int64, limit int) ([]webhook.Resend, error) {
	return queryConfirmed(ctx, s, "events to resend", func(row pgx.CollectableRow) (r webhook.Resend, err error) {
		r.Event, err = scanEvent(row, &r.Requests, &r.Attempts)
		return r, err
	}, nextResendsQuery, endpointID, limit, webhook.MaxBackoff)
}

// failResendQuery gives an event up that has failed for too long. Another request for it begins anew.
const failResendQuery = `
with judged as (
	select position, coalesce(failing_since <= now() - $5::interval, false) as given_up from resends
	where endpoint_id = $1 and position = $2 and requests = $3
	for update
), dropped as (
	delete from resends r using judged j where r.endpoint_id = $1 and r.position = j.position and j.given_up
	returning r.position
), kept as (
	update resends r set attempts = r.attempts + 1, next_attempt_at = now() + $4,
		failing_since = least(coalesce(r.failing_since, now()), now())
	from judged j where r.endpoint_id = $1 and r.position = j.position and not j.given_up
), paused as (
	update endpoints set resends_after = now() + $6, missed = missed + (select count(*) from dropped) where id = $1
)
select count(*) from dropped`

// FailResend records that an event could not be delivered once more, and pauses the endpoint's resends. It returns
// true when the event is given up: it has failed for webhook.FailingLimit.
func (s *Store) FailResend(
	ctx context.Context, endpointID int64, r *webhook.Resend, f webhook.ResendFailure,
) (givenUp bool, err error) {
	dropped, err := queryValue[int](ctx, s, "record a failed resend", failResendQuery,
		endpointID, r.Position, r.Requests, f.Backoff, webhook.FailingLimit, f.Pause)
	return dropped > 0, err
}

// MarkResent records that an event arrived once more. One that was asked for again since it was read stays due.
func (s *Store) MarkResent(ctx context.Context, endpointID int64, r *webhook.Resend) error {
	const query = `delete from resends where endpoint_id = $1 and position = $2 and requests = $3`
	_, err := s.exec(ctx, "record a resent event", query, endpointID, r.Position, r.Requests)
	return err
}
