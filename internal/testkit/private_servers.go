package testkit

import (
	"context"
	"testing"

	"sluice/db"
	"sluice/internal/localservers"
)

// PrivateRedis starts a Redis for this test alone, which it may kill, pause and restart. Config lines (redis.conf syntax)
// are added to the usual ones. It runs from the machine's binaries whatever TEST_SERVERS says.
func PrivateRedis(t testing.TB, config ...string) *localservers.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	r, err := localservers.StartRedis(ctx, localservers.RedisOptions{Config: config})
	if err != nil {
		skipWithout(t, localError(err))
	}
	closeAfter(t, r.Close)
	return r
}

// PrivateCluster starts a Redis Cluster of three masters for this test alone, which may kill, pause and restart its nodes. Config
// lines are as for PrivateRedis. It takes two seconds at least: prefer RedisCluster.
func PrivateCluster(t testing.TB, config ...string) *localservers.RedisCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := localservers.StartRedisCluster(ctx, localservers.RedisOptions{Config: config})
	if err != nil {
		skipWithout(t, localError(err))
	}
	closeAfter(t, c.Close)
	return c
}

// PrivatePostgres starts a Postgres for this test alone, with a migrated database, which the test may kill, pause and
// restart. Config lines (postgresql.conf syntax) are added to the usual ones. It runs from the machine's binaries
// whatever TEST_SERVERS says.
func PrivatePostgres(t testing.TB, config ...string) *localservers.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	p, err := localservers.StartPostgres(ctx, localservers.PostgresOptions{Config: config})
	if err != nil {
		skipWithout(t, localError(err))
	}
	closeAfter(t, p.Close)
	if err := db.Migrate(ctx, p.URL()); err != nil {
		t.Fatalf("migrate the private Postgres: %v", err)
	}
	return p
}

func closeAfter(t testing.TB, end func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("end the private server: %v", err)
		}
	})
}

// PrivateReplica starts a replica of a private Redis, in step with it, which the test may kill, pause, promote and restart.
func PrivateReplica(t testing.TB, primary *localservers.Redis, config ...string) *localservers.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	replica, err := primary.StartReplica(ctx, config...)
	if err != nil {
		t.Fatalf("start a replica: %v", err)
	}
	return replica // it ends with its primary
}
