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

const (
	rotateQuery = `
with clock as materialized (
	select now() as at, now() + $4::interval as until
), e as (
	update endpoints e set secret = $3,
		previous_secret = case when $4 > interval '0' then e.secret else '' end,
		previous_secret_until = case when $4 > interval '0' then c.until end
	from clock c
	where e.id = $1 and ($4 <= interval '0' or coalesce(e.previous_secret_until <= c.at, true))
	returning e.*
), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'rotate-secret',
		jsonb_build_object('endpoint', id, 'url', url, 'previous_until', event_time(previous_secret_until)) from e
)
select ` + endpointColumns + endpointSecrets + ` from e`
	replaceSecretsQuery = `
with e as (
	update endpoints set secret = $5, previous_secret = $6
	where id = $1 and secret = $3 and (previous_secret = $4 or previous_secret_until <= now())
	returning *
), logged as (
	insert into audit_log (actor, action, detail)
	select $2, 'encrypt-secret', jsonb_build_object('endpoint', id, 'url', url) from e
)
select count(*) > 0 from e`
	forgetSecretsQuery = `
update endpoints set previous_secret = '', previous_secret_until = null where previous_secret_until <= now()`
)

// RotateSecret stores another secret of an endpoint, and keeps the one before for a time, in which events are signed
// with both. It returns the endpoint with its secrets. Errors: KindNotFound, KindConflict (another secret is kept
// still; a third would put out the one that the receiver has).
func (s endpointRegistry) RotateSecret(
	ctx context.Context, actor string, id int64, secret string, keep time.Duration,
) (webhook.Endpoint, error) {
	if idempotency.Done(ctx) {
		return s.Endpoint(ctx, id)
	}
	e, err := queryOne(ctx, s.Store, "endpoint", scanWithSecrets, rotateQuery, id, actor, secret, keep)
	if !errors.Is(err, pgx.ErrNoRows) {
		return e, endpointError(err, id)
	}
	if _, err := s.Endpoint(ctx, id); err != nil {
		return e, err
	}
	return e, pipeline.Errorf(pipeline.KindConflict, "the secret of endpoint %d was changed before, and the older one counts "+
		"still: wait until it does not, or keep none (0s) if the receiver has the latest", id)
}

// ReplaceSecrets stores the secrets of an endpoint in another form. It returns false when they were changed meanwhile.
func (s endpointRegistry) ReplaceSecrets(
	ctx context.Context, actor string, before, after *webhook.Endpoint,
) (bool, error) {
	return queryValue[bool](ctx, s.Store, "endpoint", replaceSecretsQuery,
		before.ID, actor, before.Secret, before.PreviousSecret, after.Secret, after.PreviousSecret)
}
