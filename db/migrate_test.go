package db_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// newest is the last migration that this build has.
const newest = 42

func TestMigrateFromEmptyAndAgain(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.EmptyDatabase(t), patient)
	if got, err := db.Version(f.ctx(), f.url); got != 0 || err != nil {
		t.Fatalf("version of an empty database: got %d, %v, want 0", got, err)
	}
	err := f.store.CheckSchema(f.ctx())
	wantKind(t, err, pipeline.KindUnavailable)
	want := fmt.Sprintf("the database has schema version 0, this build needs %d; run: sluice migrate", newest)
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}

	for range 2 {
		if err := db.Migrate(f.ctx(), f.url); err != nil {
			t.Fatalf("migrate: %v", err)
		}
		if got, err := db.Version(f.ctx(), f.url); got != newest || err != nil {
			t.Fatalf("version: got %d, %v, want %d", got, err, newest)
		}
		if err := f.store.CheckSchema(f.ctx()); err != nil {
			t.Fatalf("schema after migrating: %v", err)
		}
	}
	wantEveryMigration(f)
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := testkit.EmptyDatabase(t)
	errs := make([]error, 4)
	var runs sync.WaitGroup
	for i := range errs {
		runs.Go(func() { errs[i] = db.Migrate(t.Context(), url) })
	}
	runs.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("run %d: %v", i, err)
		}
	}
	f := open(t, url, patient)
	wantEveryMigration(f)
}

// wantEveryMigration checks that each file is noted once. Numbers may have gaps.
func wantEveryMigration(f *fixture) {
	f.Helper()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		f.Fatalf("no migrations: %v", err)
	}
	if got := one[int](f, `select count(*) from goose_db_version where version_id > 0`); got != len(files) {
		f.Errorf("migrations noted: got %d, want %d", got, len(files))
	}
}

// While another run holds the lock, a run waits, and touches nothing.
func TestMigrateWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.EmptyDatabase(t), patient)
	other, err := f.raw.Acquire(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if _, err := other.Exec(f.ctx(), `select pg_advisory_lock($1)`, lock.DefaultLockID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.ctx(), 1500*time.Millisecond) // the wait is asked again after one second
	defer cancel()
	wantKind(t, db.Migrate(ctx, f.url), pipeline.KindUnavailable)
	if got := one[bool](f, `select to_regclass('sales') is null`); !got {
		t.Fatal("migrated out of turn")
	}
	if _, err := other.Exec(f.ctx(), `select pg_advisory_unlock($1)`, lock.DefaultLockID); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(f.ctx(), f.url); err != nil {
		t.Error(err)
	}
}

func TestCheckSchemaAcceptsNewer(t *testing.T) {
	f := setup(t)
	f.exec(`insert into goose_db_version (version_id, is_applied) values (99, true)`)
	if err := f.store.CheckSchema(f.ctx()); err != nil {
		t.Errorf("a database ahead of this build: %v", err)
	}
}

// Every constraint has a name of ours, so that a violation is recognised by its name.
func TestConstraintsAreNamed(t *testing.T) {
	f := setup(t)
	unnamed := one[int64](f, `
		select count(*) from pg_constraint c join pg_class t on t.oid = c.conrelid
		where c.connamespace = 'public'::regnamespace and t.relname <> 'goose_db_version'
		and (c.conname !~ ('^' || t.relname || '_') or c.conname ~ '_(check|fkey|excl)[0-9]*$')`)
	if unnamed != 0 {
		t.Errorf("%d constraints have a generated name", unnamed)
	}
}

func TestMigrateRefusesBadURL(t *testing.T) {
	t.Parallel()
	err := db.Migrate(t.Context(), "postgres://user:secret@host:notaport/db")
	wantKind(t, err, pipeline.KindInvalid)
	wantSecretless(t, err)
}
