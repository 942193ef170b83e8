package db

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Store is sales and orders in Postgres. It is safe for concurrent use and has a bounded pool of connections.
type Store struct {
	pool        *pool
	distributed atomic.Pointer[bool] // nil until it was asked
	forgotten
	unitMoves
}

// Open returns a Store. It does not connect: Ping checks whether Postgres answers, and a Postgres that starts later is
// found by itself. Errors are KindInvalid: the url or an option can't be used.
//
// Behind pgbouncer in transaction mode: pgbouncer refuses session settings that it does not know, so give it
// ignore_startup_parameters with the names in Options.runtimeParams, and set them on the role instead (alter role …
// set …); before its version 1.21 add default_query_exec_mode=exec to the url. The keepalives of vanished.go need
// nothing. Migrate always needs a direct connection.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, badURL(err)
	}
	opts.apply(config)
	preferPrimary(config.ConnConfig)
	leaves := leaveDemoted(config.ConnConfig)
	connections, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, badURL(err)
	}
	leaves.Store(connections)
	s := &Store{pool: &pool{connections}}
	s.forgotten, s.unitMoves = forgotten{s}, unitMoves{s}
	return s, nil
}

// isDistributed reports whether Postgres can have sales on several nodes: whether it has Citus. It asks once, because
// tables are distributed while no program runs.
func (s *Store) isDistributed(ctx context.Context) (bool, error) {
	if known := s.distributed.Load(); known != nil {
		return *known, nil
	}
	const query = `select to_regclass('pg_catalog.pg_dist_partition') is not null`
	distributed, err := queryValue[bool](ctx, s, "kind of database", query)
	if err == nil {
		s.distributed.Store(&distributed)
	}
	return distributed, err
}

// Close waits for the calls in progress and closes every connection.
func (s *Store) Close() { s.pool.Close() }

// Ping reports whether Postgres answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	return wrap(s.pool.Ping(ctx), "ping")
}
