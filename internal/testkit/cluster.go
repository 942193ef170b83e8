package testkit

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/config"
)

// RedisCluster returns a client of the process' shared Redis Cluster of three masters, made as the product makes its
// own from a REDIS_URL, and closed when the test ends. The cluster runs from the machine's binaries whatever
// TEST_SERVERS says. Its keys are removed with it, not with the test: tests put their own name into their keys.
func RedisCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	return ClusterClient(t, sharedCluster.url(t))
}

// ClusterClient is RedisCluster for a cluster of the test's own (see PrivateCluster).
func ClusterClient(t testing.TB, url string) *redis.ClusterClient {
	t.Helper()
	options, err := config.RedisOptions(url)
	if err != nil {
		t.Fatalf("Redis URL: %v", err)
	}
	client, ok := config.NewRedisClient(options).(*redis.ClusterClient)
	if !ok {
		t.Fatalf("%s is not the URL of a cluster", url)
	}
	closeAfter(t, client, "the Redis Cluster client")
	return client
}
