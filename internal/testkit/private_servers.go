package testkit

import (
	"context"
	"io"
	"testing"

	"sluice/internal/localservers"
)

// PrivateRedis starts a Redis for this test alone, which may kill, pause and restart it. Config lines (redis.conf
// syntax) are added to the usual ones. It runs from the machine's binaries whatever TEST_SERVERS says.
func PrivateRedis(t testing.TB, config ...string) *localservers.Redis {
	t.Helper()
	return private(t, localservers.StartRedis, config)
}

// PrivateCluster starts a Redis Cluster of three masters for this test alone, which may kill, pause and restart its
// nodes. Config lines are as for PrivateRedis. It takes two seconds at least: prefer RedisCluster.
func PrivateCluster(t testing.TB, config ...string) *localservers.RedisCluster {
	t.Helper()
	return private(t, localservers.StartRedisCluster, config)
}

// PrivatePostgres starts a Postgres for this test alone, with a migrated database, which the test may kill, pause and
// restart. Config lines (postgresql.conf syntax) are added to the usual ones. It runs from the machine's binaries
// whatever TEST_SERVERS says.
func PrivatePostgres(t testing.TB, config ...string) *localservers.Postgres {
	t.Helper()
	return migrated(t, private(t, localservers.StartPostgres, config))
}

func migrated(t testing.TB, p *localservers.Postgres) *localservers.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := migrateAndGrant(ctx, p.URL()); err != nil {
		t.Fatalf("migrate the private Postgres: %v", err)
	}
	return p
}

// private starts a server that ends with the test.
func private[T localServer](t testing.TB, start startFunc[T], config []string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	server, err := start(ctx, config...)
	if err != nil {
		skipWithout(t, localError(err))
	}
	closeAfter(t, server, "the private server")
	return server
}

func closeAfter(t testing.TB, what io.Closer, name string) {
	t.Helper()
	t.Cleanup(func() {
		if err := what.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
}

// PrivateReplica starts a replica of a private Redis, in sync with it, which the test may kill, pause, promote and
// restart.
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

// PrivateStandby starts a standby of a private Postgres, for which every commit of that waits from now on.
func PrivateStandby(t testing.TB, primary *localservers.Postgres, config ...string) *localservers.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	standby, err := primary.StartStandby(ctx, config...)
	if err == nil {
		err = primary.AwaitStandby(ctx)
	}
	if err != nil {
		t.Fatalf("start a standby: %v", err)
	}
	return standby // it ends with its primary
}

// RedisWithClock is PrivateRedis for a test that also moves the server's clock.
func RedisWithClock(t testing.TB, config ...string) *localservers.Redis {
	t.Helper()
	return private(t, localservers.StartRedisWithClock, config)
}

// PostgresWithClock is PrivatePostgres for a test that also moves the server's clock.
func PostgresWithClock(t testing.TB, config ...string) *localservers.Postgres {
	t.Helper()
	return migrated(t, private(t, localservers.StartPostgresWithClock, config))
}
