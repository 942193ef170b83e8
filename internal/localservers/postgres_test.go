package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func connect(t *testing.T, p *Postgres) *pgx.Conn {
	t.Helper()
	conn := must(pgx.Connect(limited(t), p.URL()))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have lost its server
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var got T
	if err := conn.QueryRow(limited(t), sql, args...).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func sqlExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(limited(t), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestPostgresIsDurableAndPrivateAndTakesConfigLines(t *testing.T) {
	t.Parallel()
	conn := connect(t, newPostgres(t, "work_mem = 5MB"))
	want := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "",
		"server_encoding": "UTF8", "max_connections": "200",
		"TimeZone": "UTC", "dynamic_shared_memory_type": "mmap", "work_mem": "5MB",
	}
	for name, value := range want {
		if got := query[string](t, conn, "select current_setting($1)", name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
	got := query[string](t, conn, `select current_user || ' ' || datname || ' ' || datcollate || ' ' || usesuper
		from pg_database, pg_user where datname = current_database() and usename = current_user`)
	if want := "sluice sluice C true"; got != want {
		t.Errorf("user, database, collation, superuser: got %q, want %q", got, want)
	}
}

// The environment of a test or a demo may name another server. Not parallel: it changes the environment.
func TestPostgresIgnoresTheCallersEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGPORT": "1", "PGHOST": "192.0.2.1", "PGUSER": "somebody", "PGDATABASE": "other", "PGSSLMODE": "require",
		"PGDATA": "/nowhere", "TZ": "Asia/Tokyo", "LC_ALL": "xx_XX",
	} {
		t.Setenv(name, value)
	}
	conn := connect(t, newPostgres(t))
	if got := query[string](t, conn, "select current_user || '@' || current_database()"); got != "sluice@sluice" {
		t.Errorf("got %s, want sluice@sluice", got)
	}
}

func TestPostgresKeepsEveryCommitOverAKill(t *testing.T) {
	t.Parallel()
	p := newPostgres(t)
	url := p.URL()
	sqlExec(t, connect(t, p), "create table commits (n int)")
	for n := range 3 {
		sqlExec(t, connect(t, p), fmt.Sprintf("insert into commits values (%d)", n))
		check(t, p.Kill())
		check(t, p.Restart(limited(t)))
	}
	if got := query[int](t, connect(t, p), "select count(*) from commits"); got != 3 || p.URL() != url {
		t.Errorf("got %d commits at %s, want 3 at %s", got, p.URL(), url)
	}
	check(t, p.Stop(limited(t)))
	check(t, p.Restart(limited(t)))
	if got := query[int](t, connect(t, p), "select count(*) from commits"); got != 3 {
		t.Errorf("after an orderly stop: got %d commits, want 3", got)
	}
}

// A backend that outlived its postmaster could commit after the "power cut".
func TestPostgresKillTakesTheBackendsAlong(t *testing.T) {
	t.Parallel()
	p := newPostgres(t)
	conn := connect(t, p)
	backend := query[int](t, conn, "select pg_backend_pid()")
	looping := make(chan error, 1)
	ctx := limited(t)
	go func() {
		_, err := conn.Exec(ctx, "do $$ begin loop end loop; end $$") // never checks whether its postmaster lives
		looping <- err
	}()
	watcher := connect(t, p)
	eventually(t, "the backend to be busy", func() bool {
		return query[string](t, watcher, "select state from pg_stat_activity where pid = $1", backend) == "active"
	})
	check(t, p.Kill())
	if isAlive(backend) {
		t.Errorf("backend %d outlived Kill", backend)
	}
	if err := <-looping; err == nil {
		t.Error("the query of a killed server succeeded")
	}
}

func TestPostgresComesBackWithEarlierData(t *testing.T) {
	t.Parallel()
	p := newPostgres(t)
	sqlExec(t, connect(t, p), "create table commits as select 1 as n")
	if _, err := p.SaveData(); err == nil || !strings.Contains(err.Error(), "stop or kill it first") {
		t.Errorf("save while it runs: got %v, want an error that says what to do", err)
	}
	check(t, p.Kill())
	saved := must(p.SaveData())(t)
	for range 2 { // a copy can be restored often
		check(t, p.Restart(limited(t)))
		sqlExec(t, connect(t, p), "insert into commits values (2)")
		check(t, p.Kill())
		check(t, p.RestoreData(saved))
	}
	check(t, p.Restart(limited(t)))
	if got := query[int](t, connect(t, p), "select count(*) from commits"); got != 1 {
		t.Errorf("got %d commits, want the one from before the copy", got)
	}
}

func TestPausedPostgresAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	p := newPostgres(t)
	conn, other := connect(t, p), connect(t, p)
	check(t, p.Pause())
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := other.Exec(short, "select 1"); err == nil {
		t.Error("a paused Postgres answered on an open connection")
	}
	check(t, p.Resume())
	if got := query[int](t, conn, "select 1"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
	check(t, p.Pause())
	check(t, p.Stop(limited(t))) // wakes it up
}

func TestPostgresThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	p, err := StartPostgres(limited(t), "no_such_setting = 1")
	if err == nil {
		check(t, p.Close())
		t.Fatal("started with a setting that doesn't exist")
	}
	if errors.Is(err, ErrNoBinary) {
		needServer(t, err)
	}
	if !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error does not show the log: %v", err)
	}
}

// Not parallel: it changes the environment.
func TestInitdbThatFailsSaysWhy(t *testing.T) {
	bin := publicDir(t)
	for _, name := range []string{"postgres", "initdb"} {
		check(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho no space on this device\nexit 3\n"), 0o755))
	}
	t.Setenv(postgresBinEnv, bin)
	_, err := StartPostgres(limited(t))
	if err == nil || !containsAll(err.Error(), "no space on this device", "exit status 3") {
		t.Errorf("got %v, want initdb's output and exit status", err)
	}
}

// A Postgres that is killed can't remove its System V shared memory segment.
func TestKilledPostgresLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/sysvipc/shm"); err != nil {
		t.Skip("this system doesn't list its shared memory in /proc")
	}
	p := newPostgres(t)
	lock := must(os.ReadFile(filepath.Join(p.Dir(), "data", "postmaster.pid")))(t)
	segment := strings.Fields(strings.Split(string(lock), "\n")[6])[1]
	if !segmentExists(t, segment) {
		t.Fatalf("segment %s of the running server is not listed", segment)
	}
	check(t, p.Kill())
	check(t, p.Close())
	if segmentExists(t, segment) {
		t.Errorf("segment %s is still there", segment)
	}
}

func segmentExists(t *testing.T, id string) bool {
	t.Helper()
	list := must(os.ReadFile("/proc/sysvipc/shm"))(t)
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == id {
			return true
		}
	}
	return false
}
