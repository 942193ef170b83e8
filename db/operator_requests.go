package db

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/idempotency"
)

const (
	// claimNewQuery begins a request under a key that is not known, unless too many are. The count stops at the limit.
	claimNewQuery = `
insert into operator_requests (key_hash, request_hash, lease, leased_until)
select $1, $2, $3::text::uuid, now() + $4::interval
where (select count(*) from (select from operator_requests limit $5::integer) kept) < $5::integer
on conflict on constraint operator_requests_key do nothing
returning id, 0::bigint`

	// claimAgainQuery takes over a request whose last try has ended without an answer. It waits for the row's lock, which
	// the change of a try holds until it is committed. A lease that is longer than any was made by a clock that is set
	// back since.
	claimAgainQuery = `
update operator_requests set lease = $3::text::uuid, leased_until = now() + $4::interval
where key_hash = $1 and request_hash = $2 and answered_at is null
	and (leased_until is null or leased_until <= now() or leased_until > now() + $4::interval)
returning id, coalesce(log_id, 0)`

	knownRequestQuery = `
select request_hash, status, header::text, body from operator_requests where key_hash = $1`
)

// ClaimRequest claims a key for one try, or returns the answer that it has. Errors: idempotency.ErrReused,
// idempotency.ErrInUse, KindUnavailable.
func (s *Store) ClaimRequest(
	ctx context.Context, r idempotency.Request,
) (idempotency.Claim, *idempotency.Answer, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	lease := uuid.NewString()
	for _, query := range []string{claimNewQuery, claimAgainQuery} {
		args := []any{r.KeyHash, r.Hash, lease, idempotency.Lease}
		if query == claimNewQuery {
			args = append(args, idempotency.MaxKept)
		}
		claim, err := queryOne(ctx, s, "claim a request", func(row pgx.CollectableRow) (c idempotency.Claim, err error) {
			c.Lease = lease
			return c, row.Scan(&c.ID, &c.Line)
		}, query, args...)
		if !errors.Is(err, pgx.ErrNoRows) {
			return claim, nil, err
		}
	}
	answer, err := s.knownRequest(ctx, r)
	return idempotency.Claim{}, answer, err
}

// knownRequest is why a key can't be claimed: it has an answer, is somebody else's, or there are too many.
func (s *Store) knownRequest(ctx context.Context, r idempotency.Request) (*idempotency.Answer, error) {
	var hash string
	var status *int
	var header *string
	answer, err := queryOne(ctx, s, "find a request", func(row pgx.CollectableRow) (a idempotency.Answer, err error) {
		return a, row.Scan(&hash, &status, &header, &a.Body)
	}, knownRequestQuery, r.KeyHash)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, pipeline.Errorf(pipeline.KindUnavailable,
			"%d idempotency keys are kept, and no more at a time; repeat it later, or without a key", idempotency.MaxKept)
	case err != nil:
		return nil, err
	case hash != r.Hash:
		return nil, idempotency.ErrReused
	case status == nil || header == nil:
		return nil, idempotency.ErrInUse
	}
	answer.Status = *status
	if err := json.Unmarshal([]byte(*header), &answer.Header); err != nil {
		return nil, pipeline.Wrap(pipeline.KindUnavailable, err, "the answer to a request can't be read")
	}
	return &answer, s.confirm(ctx)
}

// AnswerRequest keeps the answer of the try that holds a claim. Errors: KindUnavailable; KindData for one that is too
// long.
func (s *Store) AnswerRequest(ctx context.Context, c idempotency.Claim, a idempotency.Answer) error {
	header, err := json.Marshal(a.Header)
	if err != nil {
		return err
	}
	if a.Header == nil {
		header = []byte("{}")
	}
	_, err = s.exec(ctx, "keep the answer to a request", `
		update operator_requests set answered_at = now(), status = $3, header = $4::text::jsonb, body = $5, lease = null,
			leased_until = null
		where id = $1 and lease = $2::text::uuid and answered_at is null`,
		c.ID, c.Lease, a.Status, string(header), append([]byte{}, a.Body...))
	return err
}

// ReleaseRequest ends the try that holds a claim without an answer.
func (s *Store) ReleaseRequest(ctx context.Context, c idempotency.Claim, forget bool) error {
	query := `
		update operator_requests set lease = null, leased_until = null
		where id = $1 and lease = $2::text::uuid and answered_at is null`
	if forget {
		query = `
		delete from operator_requests
		where id = $1 and lease = $2::text::uuid and answered_at is null and log_id is null`
	}
	_, err := s.exec(ctx, "release a request", query, c.ID, c.Lease)
	return err
}

// PruneRequests drops up to limit keys that are older than idempotency.Keep, and returns how many.
func (s *Store) PruneRequests(ctx context.Context, limit int) (int, error) {
	dropped, err := s.exec(ctx, "drop old requests", `
		delete from operator_requests where id in (
			select id from operator_requests where begun_at < now() - $1::interval order by begun_at limit $2
		)`, idempotency.Keep, limit)
	return int(dropped), err
}

// begin runs work in a transaction that marks the request of an operator as done, if the context has one, and whose
// lines in the audit log say why, if the context does.
func (s *Store) begin(ctx context.Context, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if reason := auditlog.Reason(ctx); reason != "" {
			const why = `select set_config('sluice.reason', $1, true)`
			if _, err := tx.Exec(ctx, why, reason); err != nil {
				return err
			}
		}
		if claim, ok := idempotency.From(ctx); ok {
			const name = `select set_config('sluice.request', $1, true)`
			if _, err := tx.Exec(ctx, name, strconv.FormatInt(claim.ID, 10)+" "+claim.Lease); err != nil {
				return err
			}
		}
		return work(tx)
	})
}

// run gives work the pool or, where the context has a request of an operator or a reason, a transaction that names it.
// What lost against another transaction is run again.
func (s *Store) run(ctx context.Context, work func(querier) error) error {
	_, err := retryCollisions(ctx, func() (struct{}, error) { return struct{}{}, s.runOnce(ctx, work) })
	return err
}

func (s *Store) runOnce(ctx context.Context, work func(querier) error) error {
	if _, ok := idempotency.From(ctx); !ok && auditlog.Reason(ctx) == "" {
		return work(s.pool)
	}
	return s.begin(ctx, func(tx pgx.Tx) error { return work(tx) })
}

// doneDetail reads the line of the audit log that an earlier try of the request wrote.
func doneDetail[T any](ctx context.Context, s *Store) (T, error) {
	var done T
	claim, _ := idempotency.From(ctx)
	const query = `select detail::text from audit_log where id = $1`
	detail, err := queryValue[string](ctx, s, "what was done", query, claim.Line)
	if err != nil {
		return done, err
	}
	if err := json.Unmarshal([]byte(detail), &done); err != nil {
		return done, pipeline.Wrap(pipeline.KindUnavailable, err, "what was done can't be read")
	}
	return done, nil
}
