package crashpoint

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/localservers"
	"sluice/internal/programs"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

const (
	// testbeds is how many points are tried at once. Most of a run is waiting for claims and ticks. Redis has so many
	// databases.
	testbeds = 16
	// patience bounds any wait: many times what it takes, on a machine that is busy with something else.
	patience = 2 * time.Minute
)

// testbed is one database of each server, where points are tried one after the other.
type testbed struct {
	servers               *localservers.Servers
	journal               string // directory of the accept journals
	programs              string // the folder with api and worker
	redisURL, databaseURL string
	rdb                   *redis.Client
	store                 *db.Store
	pool                  *pgxpool.Pool // for queries of our own
}

// openTestbeds starts one private Redis and one private Postgres, and makes testbeds on them.
func openTestbeds(t *testing.T) []*testbed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	servers, err := localservers.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	template := servers.Postgres.URL()
	if err := db.Migrate(ctx, template); err != nil {
		t.Fatal(err)
	}
	admin, err := pgxpool.New(ctx, strings.Replace(template, "/sluice?", "/postgres?", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	programs := build(t)
	all := make([]*testbed, testbeds)
	for i := range all {
		name := fmt.Sprintf("place%d", i)
		if _, err := admin.Exec(ctx, "create database "+name+" template sluice"); err != nil {
			t.Fatal(err)
		}
		all[i] = openTestbed(t, servers, fmt.Sprintf("%s?db=%d", servers.Redis.URL(), i),
			strings.Replace(template, "/sluice?", "/"+name+"?", 1))
	}
	for _, p := range all {
		p.programs = programs
	}
	loadScripts(t, all[0].rdb)
	return all
}

// loadScripts spares the processes the detour over NOSCRIPT, which only the first of them would take.
func loadScripts(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for name, source := range lua.Sources() {
		if err := rdb.ScriptLoad(t.Context(), source).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, file := range lockScripts(t) {
		if err := rdb.ScriptLoad(t.Context(), string(read(t, file))).Err(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func openTestbed(t *testing.T, servers *localservers.Servers, redisURL, databaseURL string) *testbed {
	t.Helper()
	p := &testbed{servers: servers, journal: filepath.Join(t.TempDir(), "journal"), redisURL: redisURL, databaseURL: databaseURL, rdb: testkit.Client(t, redisURL)}
	var err error
	if p.store, err = db.Open(t.Context(), databaseURL, db.Options{MaxConns: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.store.Close)
	if p.pool, err = pgxpool.New(t.Context(), databaseURL+"&pool_max_conns=2"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.pool.Close)
	return p
}

// reset makes a testbed a new installation.
func (p *testbed) reset(t *testing.T) {
	t.Helper()
	if err := p.rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(p.journal); err != nil {
		t.Fatal(err)
	}
	const forget = `truncate sales, orders, releases, watermarks, dead_letters, audit_log, accept_journals,
		journal_reports cascade`
	if _, err := p.pool.Exec(t.Context(), forget); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.EnsurePartitions(t.Context(), partitions); err != nil {
		t.Fatal(err)
	}
	if err := recovery.EnsureVerified(t.Context(), p.rdb, keys, p.store, partitions, silent); err != nil {
		t.Fatal(err)
	}
}

// partitions of the installation. One is enough: partitions know nothing of each other.
const partitions = 1

var (
	keys   = pipeline.DefaultKeys
	silent = slog.New(slog.DiscardHandler)
)

// settings of all processes, those that are killed and those that take over. The worker's ladder is shortened, to
// what a busy machine keeps up with; small batches make several of them.
func (p *testbed) settings(redisURL, databaseURL string) []string {
	return append(programs.Environ(),
		"REDIS_URL="+redisURL, "DATABASE_URL="+databaseURL, fmt.Sprintf("PARTITIONS=%d", partitions),
		"ACCEPT_JOURNAL="+p.journal, "AUTH_MODE=dev", "LOG_FORMAT=json",
		"HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN="+adminToken,
		"DURABILITY=replica", // no replica is there: it is asked for, and the receipt says fsync
		"WORKER_BATCH_SIZE=4", "WORKER_CONCURRENCY=1", "BATCH_DEADLINE=1s", "LOCK_TTL=1200ms", "CLAIM_MIN_IDLE=1400ms")
}

const adminToken = "0123456789abcdef-of-an-operator-x"
