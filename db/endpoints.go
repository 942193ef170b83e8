package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/idempotency"
	"sluice/webhook"
)

// endpointColumns leave out the secret. The backlog is the distance in positions: right but for gaps, and read at once.
const endpointColumns = `e.id, e.url, e.types, e.created_at, e.disabled_at, e.disabled_reason,
	greatest(0, coalesce((select max(position) from outbox), 0) - e.cursor), e.failing_since, e.attempts,
	e.next_attempt_at, e.last_error, e.delivered_at, e.missed`

// Endpoints returns all endpoints without their secrets, by id. There are at most webhook.MaxEndpoints.
func (s *Store) Endpoints(ctx context.Context) ([]webhook.Endpoint, error) {
	return queryAll(ctx, s, "endpoints", scanEndpointRow, `select `+endpointColumns+` from endpoints e order by id`)
}

// endpointSecrets follow endpointColumns where an endpoint is read for signing.
const endpointSecrets = `, e.secret, case when e.previous_secret_until > now() then e.previous_secret else '' end`

// Endpoint returns one endpoint with its secrets, or a KindNotFound error.
func (s *Store) Endpoint(ctx context.Context, id int64) (webhook.Endpoint, error) {
	e, err := queryOne(ctx, s, "endpoint", scanWithSecrets,
		`select `+endpointColumns+endpointSecrets+` from endpoints e where id = $1`, id)
	return e, endpointError(err, id)
}

func scanWithSecrets(row pgx.CollectableRow) (webhook.Endpoint, error) {
	var secret, previous string
	e, err := scanEndpoint(row, &secret, &previous)
	e.Secret, e.PreviousSecret = secret, previous
	return e, err
}

// endpointWithoutSecret is Endpoint for answers: a secret is shown once, when its endpoint is registered.
func (s *Store) endpointWithoutSecret(ctx context.Context, id int64) (webhook.Endpoint, error) {
	e, err := s.Endpoint(ctx, id)
	e.Secret, e.PreviousSecret = "", ""
	return e, err
}

// EndpointRegistry is what operators change about endpoints.
func (s *Store) EndpointRegistry() webhook.EndpointStore { return endpointRegistry{s} }

type endpointRegistry struct{ *Store }

// AddEndpoint registers an endpoint: it receives what is committed from about now on. Errors: KindConflict when its URL
// is registered already, or when there are webhook.MaxEndpoints.
func (s endpointRegistry) AddEndpoint(
	ctx context.Context, actor, url string, seal func(id int64) string, types []string,
) (webhook.Endpoint, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	if idempotency.Done(ctx) {
		return s.addedEndpoint(ctx)
	}
	var e webhook.Endpoint
	err := s.request(ctx, func(tx pgx.Tx) error {
		// One registration at a time, or two could both be the last one that there is room for. What is read after the
		// wait is read by another statement, and so is up to date.
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('sluice:endpoints', 0))`); err != nil {
			return err
		}
		registered, known := 0, false
		const query = `select count(*), coalesce(bool_or(url = $1), false) from endpoints`
		if err := tx.QueryRow(ctx, query, url).Scan(&registered, &known); err != nil {
			return err
		}
		if known {
			return pipeline.Errorf(pipeline.KindConflict, "an endpoint with this URL is registered; "+
				"its secret can't be shown again: remove it first to get another")
		}
		if registered >= webhook.MaxEndpoints {
			return pipeline.Errorf(pipeline.KindConflict,
				"%d endpoints are registered, and no more are allowed; remove one first", registered)
		}
		if types == nil {
			types = []string{}
		}
		// Positions that were taken and not used do no harm: the cursor only has to be behind what comes.
		rows, err := tx.Query(ctx, `
			with e as (
				insert into endpoints (url, secret, types, cursor)
				select $1, 'not set yet', $2, case when is_called then last_value else 0 end from outbox_positions
				returning *
			), logged as (
				insert into audit_log (actor, action, detail)
				select $3, 'add-endpoint', jsonb_build_object('endpoint', id, 'url', url, 'types', types) from e
			)
			select `+endpointColumns+` from e`, url, types, actor)
		if err != nil {
			return err
		}
		if e, err = pgx.CollectExactlyOneRow(rows, scanEndpointRow); err != nil {
			return err
		}
		e.Secret = seal(e.ID) // which is known only now
		_, err = tx.Exec(ctx, `update endpoints set secret = $2 where id = $1`, e.ID, e.Secret)
		return err
	})
	return e, wrap(err, "add an endpoint")
}

// addedEndpoint is the endpoint that an earlier try of the same request registered.
func (s endpointRegistry) addedEndpoint(ctx context.Context) (webhook.Endpoint, error) {
	added, err := doneDetail[struct{ Endpoint int64 }](ctx, s.Store)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.Endpoint(ctx, added.Endpoint)
}

// The changes of an endpoint. Each is idempotent and writes a line into the audit log in the same statement, if it
// changes anything.
const (
	// nextEventQuery finds the event that is next behind a cursor, of some types or, without any, of all.
	nextEventQuery = `
select coalesce(min(position), $1::bigint) from outbox
where position > $1 and (cardinality($2::text[]) = 0 or type = any($2))`
	// enableQuery skips what is next, if that is given; a disabled endpoint's cursor does not move by itself.
	enableQuery = `
with e as (
	update endpoints e set disabled_at = null, disabled_reason = '', failing_since = null, attempts = 0, last_error = '',
		next_attempt_at = now(), cursor = greatest(e.cursor, $3::bigint)
	where id = $1 and disabled_at is not null
	returning *
), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'enable-endpoint',
		jsonb_build_object('endpoint', id, 'url', url, 'cursor', cursor, 'skip_next', $3::bigint is not null) from e
)
select count(*) from e`
	disableQuery = `
with e as (
	update endpoints set disabled_at = now(), disabled_reason = $3
	where id = $1 and disabled_at is null
	returning *
), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'disable-endpoint', jsonb_build_object('endpoint', id, 'url', url, 'reason', disabled_reason) from e
)
select count(*) from e`
	removeQuery = `
with e as (delete from endpoints where id = $1 returning *), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'remove-endpoint', jsonb_build_object('endpoint', id, 'url', url, 'types', types, 'cursor', cursor) from e
)
select count(*) from e`
)

// EnableEndpoint resumes deliveries to a disabled endpoint where they stopped, or after the event that is next for it.
// An enabled endpoint stays as it is. Errors: KindNotFound.
func (s endpointRegistry) EnableEndpoint(
	ctx context.Context, actor string, id int64, skipNext bool,
) (webhook.Endpoint, error) {
	if !skipNext || idempotency.Done(ctx) {
		return s.changeEndpoint(ctx, enableQuery, id, actor, (*int64)(nil))
	}
	type wants struct {
		Cursor int64
		Types  []string
	}
	endpoint, err := queryOne(ctx, s.Store, "endpoint", pgx.RowToStructByPos[wants],
		`select cursor, types from endpoints where id = $1`, id)
	if err != nil {
		return webhook.Endpoint{}, endpointError(err, id)
	}
	next, err := queryValue[int64](ctx, s.Store, "endpoint", nextEventQuery, endpoint.Cursor, endpoint.Types)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.changeEndpoint(ctx, enableQuery, id, actor, &next)
}

// DisableEndpoint stops deliveries, within some seconds. A disabled endpoint keeps its reason. Errors: KindNotFound.
func (s endpointRegistry) DisableEndpoint(ctx context.Context, actor string, id int64) (webhook.Endpoint, error) {
	return s.changeEndpoint(ctx, disableQuery, id, actor, "by "+actor)
}

func (s endpointRegistry) changeEndpoint(
	ctx context.Context, query string, id int64, actor string, with any,
) (webhook.Endpoint, error) {
	ctx, cancel := deadline(ctx, callTimeout) // for both statements
	defer cancel()
	if !idempotency.Done(ctx) {
		if _, err := s.exec(ctx, "change an endpoint", query, id, actor, with); err != nil {
			return webhook.Endpoint{}, err
		}
	}
	return s.endpointWithoutSecret(ctx, id)
}

// RemoveEndpoint deletes an endpoint and gives up what is not delivered to it. Errors: KindNotFound.
func (s endpointRegistry) RemoveEndpoint(ctx context.Context, actor string, id int64) error {
	if idempotency.Done(ctx) {
		return nil
	}
	removed, err := queryValue[int](ctx, s.Store, "endpoint", removeQuery, id, actor)
	if err == nil && removed == 0 {
		err = pgx.ErrNoRows
	}
	return endpointError(err, id)
}

func endpointError(err error, id int64) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return pipeline.Errorf(pipeline.KindNotFound, "there is no endpoint %d", id)
	}
	return wrap(err, "endpoint")
}

// scanEndpoint reads endpointColumns, and what the query selects after them.
func scanEndpoint(row pgx.CollectableRow, more ...any) (webhook.Endpoint, error) {
	var e webhook.Endpoint
	var disabled, failing, delivered *time.Time
	err := row.Scan(append([]any{
		&e.ID, &e.URL, &e.Types, &e.CreatedAt, &disabled, &e.DisabledReason, &e.Backlog, &failing,
		&e.Attempts, &e.NextAttemptAt, &e.LastError, &delivered, &e.Missed,
	}, more...)...)
	e.CreatedAt, e.NextAttemptAt = e.CreatedAt.UTC(), e.NextAttemptAt.UTC()
	e.DisabledAt, e.FailingSince, e.DeliveredAt = timeOrZero(disabled), timeOrZero(failing), timeOrZero(delivered)
	return e, err
}

func scanEndpointRow(row pgx.CollectableRow) (webhook.Endpoint, error) { return scanEndpoint(row) }
