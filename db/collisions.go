package db

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = collisionBackoff, collisionBackoffMax
	return backoff.Retry(ctx, func() (T, error) {
		result, err := transaction()
		if err != nil && !collides(err) {
			return result, backoff.Permanent(err)
		}
		return result, err
	}, backoff.WithBackOff(waits), backoff.WithMaxTries(collisionTries))
}

// collides reports whether a transaction lost against another one and may simply be run again.
func collides(err error) bool {
	return hasCode(err, codeSerializationFailure) || hasCode(err, codeDeadlockDetected)
}
