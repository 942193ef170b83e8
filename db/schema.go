package db

import (
	"context"
	"io/fs"

	"github.com/pressly/goose/v3"

	"sluice/pipeline"
)

// versionQuery reads goose's table. Without the table the database was never migrated.
const versionQuery = `select coalesce(max(version_id), 0) from goose_db_version where is_applied`

// CheckSchema returns a KindUnavailable error when migrations of this build are missing in the database. A database
// that is ahead is fine: migrations keep older builds working, so that servers can be replaced one by one.
func (s *Store) CheckSchema(ctx context.Context) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	needed, err := newestMigration()
	if err != nil {
		return err
	}
	var version int64
	err = s.pool.QueryRow(ctx, versionQuery).Scan(&version)
	if err != nil && !isUndefinedTable(err) {
		return wrap(err, "schema version")
	}
	if version < needed {
		return pipeline.Errorf(pipeline.KindUnavailable,
			"the database has schema version %d, this build needs %d; run: sluice migrate", version, needed)
	}
	return nil
}

func newestMigration() (int64, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return 0, pipeline.Wrap(pipeline.KindUnavailable, err, "migrations can't be read")
	}
	var newest int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, pipeline.Wrap(pipeline.KindUnavailable, err, "migrations can't be read")
		}
		newest = max(newest, version)
	}
	return newest, nil
}
