package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"

	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys one SCAN step looks at.
const scanCount = 1000

// Redis returns a client of the process' shared Redis, closed when the test ends. It never retries, as in production: a
// test sees what happened.
func Redis(t testing.TB) *redis.Client {
	t.Helper()
	return Client(t, sharedRedis.url(t))
}

// Client is Redis for a server of the test's own (see PrivateRedis).
func Client(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("Redis URL: %v", err)
	}
	options.MaxRetries = -1
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	closeAfter(t, client, "the Redis client")
	return client
}

// Prefix returns a key prefix that no other test uses, for pipeline.Keys. Every key "<prefix>:…" of the shared Redis is
// removed when the test ends.
func Prefix(t testing.TB) string {
	t.Helper()
	client := Redis(t)
	prefix := "test-" + unique()
	t.Cleanup(func() { removeKeys(t, client, prefix+":*") })
	return prefix
}

func removeKeys(t testing.TB, client *redis.Client, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	var cursor uint64
	for {
		keys, next, err := client.Scan(ctx, cursor, pattern, scanCount).Result()
		if err == nil && len(keys) > 0 {
			err = client.Unlink(ctx, keys...).Err() // all at once: each call waits for the disk
		}
		if err != nil {
			t.Errorf("remove the test's keys: %v", err)
			return
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// unique keeps the names of several test processes on one server apart. No test's behaviour depends on it, so it is not
// seeded.
func unique() string {
	var name [6]byte
	_, _ = rand.Read(name[:]) // never fails
	return hex.EncodeToString(name[:])
}
