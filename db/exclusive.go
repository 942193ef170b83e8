package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// RunExclusively runs do, unless another call runs under the same name: then it returns false at once. Postgres frees
// the name when this process or its connection dies. The lease lasts as long as the connection, and no longer: what do
// writes must be safe against a process that took over.
//
// The advisory lock belongs to a transaction, not to the session, so that it works behind a pooler.
func (s *Store) RunExclusively(ctx context.Context, name string, do func(context.Context) error) (ran bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The transaction idles while do works.
		const lock = `select set_config('idle_in_transaction_session_timeout', '0', true) is not null
			and pg_try_advisory_xact_lock(hashtextextended('sluice:' || $1, 0))`
		if err := tx.QueryRow(ctx, lock, name).Scan(&ran); err != nil || !ran {
			return err
		}
		return do(ctx)
	})
	return ran, wrap(err, "run "+name)
}
