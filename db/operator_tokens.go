package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/operator"
)

const tokenColumns = `id, name, role, hash, created_at, created_by, expires_at,
	revoked_at, coalesce(revoked_by, '')`

// OperatorTokens is where the tokens of operators are.
func (s *Store) OperatorTokens() operator.Store { return operatorTokens{s} }

type operatorTokens struct{ *Store }

// Add stores a token and writes a line into the audit log. It returns the token as it is stored. Errors:
// KindInvalid (it would expire in the past, or in more than operator.MaxLife, by this server's clock), KindConflict
// (operator.MaxTokens are valid).
func (s operatorTokens) Add(ctx context.Context, t operator.Token) (operator.Token, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var added operator.Token
	err := s.request(ctx, func(tx pgx.Tx) error {
		// One at a time, or two could both be the last one that there is room for.
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('sluice:operator-tokens', 0))`); err != nil {
			return err
		}
		if err := tokenFits(ctx, tx, &t); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			with t as (
				insert into operator_tokens (id, name, role, hash, created_by, expires_at)
				values ($1, $2, $3, $4, $5, $6)
				returning *
			), logged as (
				insert into audit_log (actor, action, detail)
				select created_by, 'add-token', jsonb_build_object('token', id, 'before', null,
					'after', jsonb_build_object('name', name, 'role', role, 'expires_at', event_time(expires_at))) from t
			)
			select `+tokenColumns+` from t`, t.ID, t.Name, t.Role, t.Hash[:], t.CreatedBy, t.ExpiresAt)
		if err != nil {
			return err
		}
		added, err = pgx.CollectExactlyOneRow(rows, scanToken)
		return err
	})
	return added, wrap(err, "add a token")
}

func tokenFits(ctx context.Context, tx pgx.Tx, t *operator.Token) error {
	var now time.Time
	valid := 0
	const query = `select now(), count(*) filter (where revoked_at is null and expires_at > now()) from operator_tokens`
	if err := tx.QueryRow(ctx, query).Scan(&now, &valid); err != nil {
		return err
	}
	switch {
	case !t.ExpiresAt.After(now):
		return pipeline.Errorf(pipeline.KindInvalid, "expires: %s has passed; it is %s", pipeline.FormatTime(t.ExpiresAt),
			pipeline.FormatTime(now))
	case t.ExpiresAt.After(now.Add(operator.MaxLife)):
		return pipeline.Errorf(pipeline.KindInvalid, "expires: %s is more than %d days from now; a token that is needed for "+
			"longer is replaced then", pipeline.FormatTime(t.ExpiresAt), int(operator.MaxLife.Hours()/24))
	case valid >= operator.MaxTokens:
		return pipeline.Errorf(pipeline.KindConflict, "%d tokens are valid, and no more are allowed; revoke one first", valid)
	}
	return nil
}

// Revoke ends a token, and writes a line into the audit log. It returns the token as it is now, and whether this
// call changed it. Errors: KindNotFound.
func (s operatorTokens) Revoke(
	ctx context.Context, id, actor string,
) (t operator.Token, changed bool, err error) {
	t, err = queryOne(ctx, s.Store, "revoke a token", scanToken, `
		with t as (
			update operator_tokens set revoked_at = now(), revoked_by = $2
			where id = $1 and revoked_at is null
			returning *
		), logged as (
			insert into audit_log (actor, action, detail)
			select $2, 'revoke-token', jsonb_build_object('token', id, 'name', name,
				'before', jsonb_build_object('revoked_at', null),
				'after', jsonb_build_object('revoked_at', event_time(revoked_at))) from t
		)
		select `+tokenColumns+` from t`, id, actor)
	if errors.Is(err, pgx.ErrNoRows) {
		t, _, err = s.Find(ctx, id)
		return t, false, err
	}
	return t, err == nil, err
}

// Find returns the token with an id, and this server's time. Errors: KindNotFound.
func (s operatorTokens) Find(ctx context.Context, id string) (operator.Token, time.Time, error) {
	type timed struct {
		token operator.Token
		now   time.Time
	}
	found, err := queryOne(ctx, s.Store, "token", func(row pgx.CollectableRow) (t timed, err error) {
		t.token, err = scanTokenAnd(row, &t.now)
		return t, err
	}, `select `+tokenColumns+`, now() from operator_tokens where id = $1`, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return operator.Token{}, time.Time{}, pipeline.Errorf(pipeline.KindNotFound, "no token has the id %q", id)
	}
	return found.token, found.now, err
}

// List returns tokens by name: those that are valid, or all that there are, the newest
// operator.MaxTokens of them.
func (s operatorTokens) List(ctx context.Context, all bool) ([]operator.Token, error) {
	return queryAll(ctx, s.Store, "tokens", scanToken, `
		select * from (
			select `+tokenColumns+` from operator_tokens
			where $1 or revoked_at is null and expires_at > now()
			order by created_at desc limit $2
		) t order by name, created_at`, all, operator.MaxTokens)
}

func scanToken(row pgx.CollectableRow) (operator.Token, error) { return scanTokenAnd(row) }

// scanTokenAnd scans a token and what follows it.
func scanTokenAnd(row pgx.CollectableRow, more ...any) (operator.Token, error) {
	var t operator.Token
	var hash []byte
	var revoked *time.Time
	err := row.Scan(append([]any{
		&t.ID, &t.Name, &t.Role, &hash, &t.CreatedAt, &t.CreatedBy, &t.ExpiresAt, &revoked, &t.RevokedBy,
	}, more...)...)
	copy(t.Hash[:], hash)
	t.CreatedAt, t.ExpiresAt, t.RevokedAt = t.CreatedAt.UTC(), t.ExpiresAt.UTC(), timeOrZero(revoked)
	return t, err
}
