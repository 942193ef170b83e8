package process_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/recovery"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// settings are those of a program with the usual defaults, on a test's servers.
func settings(t *testing.T, redis interface{ URL() string }, databaseURL string, args ...string) config.Config {
	t.Helper()
	env := map[string]string{"REDIS_URL": redis.URL(), "DATABASE_URL": databaseURL}
	cfg, err := config.Load(config.Worker, args, func(name string) string { return env[name] }, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// connect connects and closes again.
func connect(ctx context.Context, cfg config.Config) error {
	stores, err := process.Connect(ctx, cfg, quiet)
	if err == nil {
		stores.Close()
	}
	return err
}

// TestConnectToACluster: a program of one installation takes it, and then one of another is refused, by whichever node
// it asks.
func TestConnectToACluster(t *testing.T) {
	t.Parallel()
	cluster, ours := testkit.PrivateCluster(t), testkit.Database(t)
	cfg := settings(t, cluster, ours)
	stores, err := process.Connect(t.Context(), cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	if err := recovery.EnsureVerified(t.Context(), stores.Redis, pipeline.DefaultKeys, stores.Postgres, cfg.Partitions,
		quiet); err != nil {
		t.Fatal(err)
	}
	if err := connect(t.Context(), cfg); err != nil {
		t.Errorf("the same installation again: %v", err)
	}
	if err := connect(t.Context(),
		settings(t, cluster, testkit.Database(t))); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("another installation: got %v, want KindInvalid", err)
	}
}

// TestConnectWaits: both servers come up after the program, one after the other.
func TestConnectWaits(t *testing.T) {
	t.Parallel()
	redis, postgres := testkit.PrivateRedis(t), testkit.PrivatePostgres(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(redis.Kill())
	must(postgres.Kill())
	connected := make(chan error, 1)
	go func() {
		connected <- connect(t.Context(), settings(t, redis, postgres.URL(), "--start-timeout", "1m"))
	}()
	must(redis.Restart(t.Context()))
	time.Sleep(3 * time.Second) // not waiting for anything: Postgres must be missed at least once
	must(postgres.Restart(t.Context()))
	if err := <-connected; err != nil {
		t.Errorf("got %v, want a connection", err)
	}
}

// TestConnectRefuses: what makes an installation unfit is said before anything runs.
func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	sound, fitting := testkit.PrivateRedis(t), testkit.Database(t)
	if err := connect(t.Context(), settings(t, sound, fitting)); err != nil {
		t.Fatalf("a sound installation: %v", err)
	}
	for name, c := range map[string]struct {
		cfg  config.Config
		kind pipeline.Kind
		says string
	}{
		"other partitions": {settings(t, sound, fitting, "--partitions", "8"), pipeline.KindInvalid, "set PARTITIONS=16"},
		"no schema":        {settings(t, sound, testkit.EmptyDatabase(t)), pipeline.KindUnavailable, "sluice migrate"},
		"evicting Redis": {
			settings(t, testkit.PrivateRedis(t, "maxmemory-policy allkeys-lru"), fitting), pipeline.KindInvalid, "noeviction",
		},
		"lazy Redis": {
			settings(t, testkit.PrivateRedis(t, "appendfsync no"), fitting), pipeline.KindInvalid, "appendfsync always",
		},
		"no Postgres": {
			settings(t, sound, "postgres://nobody@/x?host=/nowhere", "--start-timeout",
				"1s"), pipeline.KindUnavailable, "Postgres did not answer within 1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := connect(t.Context(), c.cfg)
			if pipeline.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v (kind %q), want kind %q and %q in it", err, pipeline.KindOf(err), c.kind, c.says)
			}
		})
	}
}

// TestConnectRefusesAForeignRedis: a Redis that one database has taken serves no other one, until it is flushed.
func TestConnectRefusesAForeignRedis(t *testing.T) {
	t.Parallel()
	server, first, second := testkit.PrivateRedis(t), testkit.Database(t), testkit.Database(t)
	stores, err := process.Connect(t.Context(), settings(t, server, first), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	if err := recovery.EnsureVerified(t.Context(), stores.Redis, pipeline.DefaultKeys, stores.Postgres, 16,
		quiet); err != nil {
		t.Fatal(err)
	}
	id, err := stores.Postgres.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = connect(t.Context(), settings(t, server, second))
	if !installation.IsForeign(err) || pipeline.KindOf(err) != pipeline.KindInvalid ||
		!strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "REDIS_URL") {
		t.Errorf("another database: got %v, want it refused, with the owner and what to do", err)
	}
	if err := connect(t.Context(), settings(t, server, first)); err != nil {
		t.Errorf("its own database: %v", err)
	}
	if err := stores.Redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t.Context(), settings(t, server, second)); err != nil {
		t.Errorf("a flushed Redis: %v", err)
	}
}
