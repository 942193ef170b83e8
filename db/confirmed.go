package db

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/pipeline"
)

// pool is a pgxpool.Pool that takes no commit for one that its standbys have not confirmed.
//
// Where Postgres waits for a synchronous standby and the wait is cut short (by statement_timeout, by an operator), it
// says COMMIT all the same, with a warning: the commit is on one disk and may be gone after a fail-over (postgres,
// src/backend/replication/syncrep.c). Here that is an error, as if the reply were lost: the caller repeats the call.
type pool struct{ *pgxpool.Pool }

// errUnconfirmed is what such a commit ends with.
var errUnconfirmed = pipeline.Errorf(pipeline.KindUnavailable,
	"Postgres committed, and no synchronous standby confirmed it in time; it is repeated")

const unconfirmedKey = "unconfirmed commits" // of a connection's own data

// waitRoutine is where Postgres waits for its standbys. The warning has no code of its own, and its text may be
// translated.
const waitRoutine = "SyncRepWaitForLSN"

// noticeUnconfirmed counts the commits of a connection that were not confirmed.
func noticeUnconfirmed(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if counter, ok := conn.CustomData()[unconfirmedKey].(*atomic.Int64); ok && notice.Routine == waitRoutine {
		counter.Add(1)
	}
}

// tellWarnings has Postgres send warnings, whatever the URL, the role or the database say (client_min_messages).
const tellWarnings = `select set_config('client_min_messages', 'warning', false)`

// unconfirmed counts the commits of a connection that no standby confirmed.
func unconfirmed(conn *pgx.Conn) *atomic.Int64 {
	data := conn.PgConn().CustomData()
	counter, ok := data[unconfirmedKey].(*atomic.Int64)
	if !ok {
		counter = new(atomic.Int64)
		data[unconfirmedKey] = counter
	}
	return counter
}

// watch is what is known of a connection's commits at the beginning of a call.
type watch struct {
	counter *atomic.Int64
	before  int64
}

func watching(conn *pgx.Conn) watch {
	counter := unconfirmed(conn)
	return watch{counter, counter.Load()}
}

// err adds to the error of a call what was not confirmed since.
func (w watch) err(err error) error {
	if err == nil && w.counter.Load() != w.before {
		return errUnconfirmed
	}
	return err
}

func (p *pool) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer conn.Release()
	w := watching(conn.Conn())
	tag, err := conn.Exec(ctx, query, args...)
	return tag, w.err(err)
}

func (p *pool) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	w := watching(conn.Conn())
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &confirmedRows{rows, conn, w}, nil
}

// QueryRow is as in pgx: a row that is not there is pgx.ErrNoRows, from Scan.
func (p *pool) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, query, args...)
	return confirmedRow{rows, err}
}

func (p *pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

func (p *pool) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := p.Pool.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return confirmedTx{tx, watching(tx.Conn())}, nil
}

// confirmedTx is a transaction whose Commit fails where it was not confirmed.
type confirmedTx struct {
	pgx.Tx
	watch watch
}

func (t confirmedTx) Commit(ctx context.Context) error { return t.watch.err(t.Tx.Commit(ctx)) }

// confirmedRows are the rows of a statement that commits when it ends.
type confirmedRows struct {
	pgx.Rows
	conn  *pgxpool.Conn // nil once it is back in the pool
	watch watch
}

func (r *confirmedRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

func (r *confirmedRows) Close() {
	r.Rows.Close()
	if r.conn != nil {
		r.conn.Release()
		r.conn = nil
	}
}

func (r *confirmedRows) Err() error { return r.watch.err(r.Rows.Err()) }

// confirmedRow is the only row of a statement.
type confirmedRow struct {
	rows pgx.Rows
	err  error
}

func (r confirmedRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close() // the rest of the answer, with the end of the transaction
	return r.rows.Err()
}

// confirmQuery writes a record that changes nothing into the log, so that the commit waits like that of a change.
const confirmQuery = `select pg_logical_emit_message(true, 'sluice', '')`

// confirm returns once the synchronous standbys, if there are any, have everything that was visible to this process
// before the call. What a crash of the primary made visible, or a call that was given up, may be on no other disk:
// nothing may be acknowledged, given back or sent because of it before. A commit of ours that comes after the reading
// and before the act does the same. Errors: KindUnavailable.
func (s *Store) confirm(ctx context.Context) error {
	_, err := s.exec(ctx, "wait for the standbys", confirmQuery)
	return err
}

// queryConfirmed is queryAll for rows that are acted upon.
func queryConfirmed[T any](
	ctx context.Context, s *Store, subject string, scan pgx.RowToFunc[T], query string, args ...any,
) ([]T, error) {
	values, err := queryAll(ctx, s, subject, scan, query, args...)
	if err == nil && len(values) > 0 {
		err = s.confirm(ctx)
	}
	return values, err
}
