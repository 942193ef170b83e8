package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"sluice/pipeline"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// migrateTimeout bounds a whole run where the caller set no deadline, the wait for another run included.
	migrateTimeout = 5 * time.Minute
	// migrateLockPeriod is how often a second run checks whether the first one is done: the least that goose allows.
	migrateLockPeriod = 1 // seconds
	// migrateLockTimeout is how long one statement may wait for a table that the running system uses. Longer would queue
	// every later query of that table behind it.
	migrateLockTimeout = "5s"
)

// Migrate brings a database to the schema of this build. Doing it again changes nothing, and of two runs at once one
// waits for the other. The url must reach Postgres itself, not a pooler: the lock between runs belongs to a session.
// There is no way back: no tool drops a table that holds orders.
func Migrate(ctx context.Context, url string) error {
	ctx, cancel := deadline(ctx, migrateTimeout)
	defer cancel()
	conn, err := openDirect(url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is left to lose: each migration was committed or reported
	provider, err := newProvider(conn)
	if err != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "migrations can't be read")
	}
	if _, err := provider.Up(ctx); err != nil {
		return migrationError(err)
	}
	return nil
}

// Version returns the number of the newest migration that a database has, 0 for an empty database.
func Version(ctx context.Context, url string) (int64, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	conn, err := openDirect(url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	var version int64
	err = conn.QueryRowContext(ctx, versionQuery).Scan(&version)
	if isUndefinedTable(err) {
		return 0, nil
	}
	return version, wrap(err, "schema version")
}

func openDirect(url string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, badURL(err)
	}
	// A migration may rightly run for minutes: the caller's deadline bounds it, not a statement's.
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["lock_timeout"] = migrateLockTimeout
	config.RuntimeParams["application_name"] = "sluice-migrate"
	config.ConnectTimeout = connectTimeout
	preferPrimary(config)
	config.DialFunc = (&net.Dialer{KeepAliveConfig: keepalive}).DialContext
	// A migration whose machine vanishes must not keep its locks for hours.
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(noticeVanished)), nil
}

func newProvider(conn *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockTimeout(migrateLockPeriod, uint64(migrateTimeout/time.Second)/migrateLockPeriod))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, conn, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}

// migrationError names the migration that failed; whatever the cause, another run goes on from there.
func migrationError(err error) error {
	var partial *goose.PartialError
	if errors.As(err, &partial) && partial.Failed != nil && partial.Failed.Source != nil {
		return pipeline.Wrap(pipeline.KindUnavailable, err, "migration "+partial.Failed.Source.Path+" failed")
	}
	return pipeline.Wrap(pipeline.KindUnavailable, err, "migration failed")
}
