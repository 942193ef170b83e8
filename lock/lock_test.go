package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const callLimit = 30 * time.Second // bounds the calls of one test, on a busy machine and under the race detector

// fixture is a server and a key prefix of the test's own.
type fixture struct {
	*testing.T
	ctx    context.Context
	rdb    *redis.Client
	prefix string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	t.Cleanup(cancel)
	return &fixture{T: t, ctx: ctx, rdb: testkit.Redis(t), prefix: testkit.Prefix(t)}
}

func (f *fixture) key(name string) string { return f.prefix + ":{p00}:lock:" + name }

func (f *fixture) keysOf(names ...string) []string {
	for i, name := range names {
		names[i] = f.key(name)
	}
	return names
}

// values are what the locks hold; "" for a free one.
func (f *fixture) values(keys []string) []string {
	f.Helper()
	held, err := f.rdb.MGet(f.ctx, keys...).Result()
	if err != nil {
		f.Fatal(err)
	}
	texts := make([]string, len(held))
	for i, value := range held {
		texts[i], _ = value.(string)
	}
	return texts
}

// ttl is how long a key has left.
func (f *fixture) ttl(key string) time.Duration {
	f.Helper()
	left, err := f.rdb.PTTL(f.ctx, key).Result()
	if err != nil {
		f.Fatal(err)
	}
	return left
}
