package db

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
)

const (
	// collisionTries bounds how often a transaction is run in all, when it loses against others.
	collisionTries = 5
	// The backoff between those tries: about as long as the batch that won takes.
	collisionBackoff    = 5 * time.Millisecond
	collisionBackoffMax = 100 * time.Millisecond
)

// retryCollisions runs a transaction again when it lost against another one, which wrote nothing.
func retryCollisions[T any](ctx context.Context, transaction func() (T, error)) (T, error) {
	return retryWhile(ctx, collides, transaction)
}

// transaction runs work in a transaction, and again as a whole when it lost against another one: work may run several
// times.
func (s *Store) transaction(ctx context.Context, work func(pgx.Tx) error) error {
	_, err := retryCollisions(ctx, func() (struct{}, error) { return struct{}{}, pgx.BeginFunc(ctx, s.pool, work) })
	return err
}

// request is transaction for work of an operator's request, see begin.
func (s *Store) request(ctx context.Context, work func(pgx.Tx) error) error {
	_, err := retryCollisions(ctx, func() (struct{}, error) { return struct{}{}, s.begin(ctx, work) })
	return err
}

// retryTwins is retryCollisions for a statement whose `on conflict` names one unique index of a table that has several.
// The same row, inserted by another call at the same moment, may be met in one of the others first, which is an error.
// By the next try that row is visible, and `on conflict` takes it. A violation that remains is a real one.
func retryTwins[T any](ctx context.Context, transaction func() (T, error)) (T, error) {
	return retryWhile(ctx, func(err error) bool { return collides(err) || hasCode(err, codeUniqueViolation) }, transaction)
}

func retryWhile[T any](ctx context.Context, lost func(error) bool, transaction func() (T, error)) (T, error) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = collisionBackoff, collisionBackoffMax
	return backoff.Retry(ctx, func() (T, error) {
		result, err := transaction()
		if err != nil && !lost(err) {
			return result, backoff.Permanent(err)
		}
		return result, err
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(collisionTries))
}

// collides reports whether a transaction lost against another one and may simply be run again.
func collides(err error) bool {
	return hasCode(err, codeSerializationFailure) || hasCode(err, codeDeadlockDetected)
}
