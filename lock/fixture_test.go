package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

const callLimit = 2 * time.Minute // bounds the calls of one test, on a busy machine and under the race detector

// fixture is a server and a key prefix of the test's own.
type fixture struct {
	*testing.T
	ctx    context.Context
	rdb    redis.UniversalClient
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

// client is a lock client that ends with the test.
func (f *fixture) client(options ...lock.Option) *lock.Client {
	f.Helper()
	l := lock.New(f.rdb, options...)
	f.Cleanup(func() { noErr(f, l.Close(), "close") })
	return l
}

func (f *fixture) unlock(h lock.Hold) {
	f.Helper()
	noErr(f, h.Unlock(f.ctx), "unlock")
}

// lockFunc is Lock or TryLock, or an RWMutex's RLock or TryRLock.
type lockFunc func(context.Context, ...lock.CallOption) (lock.Hold, error)

// later takes a lock in the background and sends its hold, or nil after a failure.
func (f *fixture) later(take lockFunc) <-chan lock.Hold {
	got := make(chan lock.Hold, 1)
	go func() {
		h, err := take(f.ctx)
		noErr(f, err, "wait")
		got <- h
	}()
	return got
}

// taken waits for the hold that later sends.
func (f *fixture) taken(got <-chan lock.Hold) lock.Hold {
	f.Helper()
	h := <-got
	if h == nil {
		f.FailNow()
	}
	return h
}

// lockAndUnlock waits for a lock and frees it.
func lockAndUnlock(ctx context.Context, l lock.Locker) error {
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// awaitQueue waits until n callers are in a queue.
func (f *fixture) awaitQueue(queue string, n int) {
	f.Helper()
	testkit.Eventually(f, callLimit, fmt.Sprintf("%d waiters", n), func() bool {
		return f.rdb.ZCard(f.ctx, queue).Val() == int64(n)
	})
}

// must returns the value of a call, and ends the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// check ends the test on an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noErr fails the test on an error; what is a format and its arguments.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err == nil {
		return
	}
	if len(what) == 0 {
		t.Error(err)
		return
	}
	t.Errorf("%s: %v", fmt.Sprintf(what[0].(string), what[1:]...), err)
}

// wantErr fails the test unless an error is the wanted one.
func wantErr(t testing.TB, got, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf drops the value of a call.
func errOf[T any](_ T, err error) error { return err }

// values are what the locks hold; "" for a free one.
func (f *fixture) values(keys []string) []string {
	f.Helper()
	held := must(f.rdb.MGet(f.ctx, keys...).Result())(f)
	texts := make([]string, len(held))
	for i, value := range held {
		texts[i], _ = value.(string)
	}
	return texts
}

// ttl is how long a key has left.
func (f *fixture) ttl(key string) time.Duration {
	f.Helper()
	left := must(f.rdb.PTTL(f.ctx, key).Result())(f)
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
