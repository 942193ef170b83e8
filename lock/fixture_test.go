package lock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
)

const callLimit = 2 * time.Minute // bounds the calls of one test, on a busy machine and under the race detector

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

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// calls reads how often a command was called from INFO commandstats.
func calls(info, command string) int {
	_, after, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	text, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(text)
	return n
}

// uptime reads INFO server.
func uptime(info string) time.Duration {
	_, after, _ := strings.Cut(info, "uptime_in_seconds:")
	text, _, _ := strings.Cut(after, "\r")
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Second
}
