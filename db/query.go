package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// callTimeout bounds a call whose context has no deadline. It is the worker's batch deadline: longer would outlive the
// order locks.
const callTimeout = 5 * time.Second

// deadline gives a context that has no deadline one of its own.
func deadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// queryAll returns every row of a query. An error names the subject of the query.
func queryAll[T any](
	ctx context.Context, s *Store, subject string, scan pgx.RowToFunc[T], query string, args ...any,
) ([]T, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var values []T
	err := s.run(ctx, func(q querier) error {
		rows, err := q.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		values, err = pgx.CollectRows(rows, scan)
		return err
	})
	return values, wrap(err, subject)
}

// queryOne returns the one row of a query, or pgx.ErrNoRows as it is.
func queryOne[T any](
	ctx context.Context, s *Store, subject string, scan pgx.RowToFunc[T], query string, args ...any,
) (T, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var value T
	err := s.run(ctx, func(q querier) error {
		rows, err := q.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		value, err = pgx.CollectExactlyOneRow(rows, scan)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return value, err
	}
	return value, wrap(err, subject)
}

// queryValue returns the value of a query that has one column and always one row.
func queryValue[T any](ctx context.Context, s *Store, subject, query string, args ...any) (T, error) {
	value, err := queryOne(ctx, s, subject, pgx.RowTo[T], query, args...)
	return value, wrap(err, subject)
}

// exec runs a statement and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, subject, query string, args ...any) (int64, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var changed int64
	err := s.run(ctx, func(q querier) error {
		tag, err := q.Exec(ctx, query, args...)
		changed = tag.RowsAffected()
		return err
	})
	return changed, wrap(err, subject)
}

// snapshotTimeout bounds the reading of one sale's rows. Ten million live orders take a minute, and several on a busy
// machine.
const snapshotTimeout = 15 * time.Minute

// snapshot runs reads that take long in one transaction, all of which see the database as it was at one instant. No
// lock is taken, and writers do not wait. An error of a caller's callback (see stream) is returned as it is.
func (s *Store) snapshot(ctx context.Context, subject string, read func(context.Context, pgx.Tx) error) error {
	ctx, cancel := deadline(ctx, snapshotTimeout)
	defer cancel()
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		if err := allowLong(ctx, tx); err != nil { // the snapshot is taken by the next query, not by this one
			return err
		}
		return read(ctx, tx)
	})
	var stopped *callbackError
	if errors.As(err, &stopped) {
		return stopped.cause
	}
	return wrap(err, subject)
}

// allowLong lets the statements of a transaction take long: the pool's limit is made for short ones.
func allowLong(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select set_config('statement_timeout', $1, true)`, milliseconds(snapshotTimeout))
	return err
}

// callbackError carries an error of the caller's own through a transaction.
type callbackError struct{ cause error }

func (e *callbackError) Error() string { return e.cause.Error() }

// stream scans the rows of a query into the same variables, one row after the other, and calls each after every row.
func stream(ctx context.Context, tx pgx.Tx, into []any, each func() error, query string, args ...any) error {
	// An error of the callback cancels the query, or else the rest of a million rows would be read to be thrown away.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if err := each(); err != nil {
			cancel()
			return &callbackError{err}
		}
		return nil
	})
	return err
}
