package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/lock"
)

// TestACrowdSharesRoundTrips: what many goroutines want at once reaches the server in fewer pieces than there are calls.
func TestACrowdSharesRoundTrips(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	l := lock.New(rdb)
	t.Cleanup(func() { _ = l.Close() })
	reads := func() int {
		info, err := rdb.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(info, "total_reads_processed:")
		text, _, _ := strings.Cut(after, "\r")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const crowd, pairs = 64, 50
	before := reads()
	each(make([]int, crowd), func(i int) {
		m := l.Mutex(fmt.Sprint("own-", i))
		for range pairs {
			h, err := m.Lock(t.Context())
			if err != nil {
				t.Errorf("lock: %v", err)
				return
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Errorf("unlock: %v", err)
			}
		}
	})
	const calls = 2 * crowd * pairs
	if got := reads() - before; got > calls*5/6 { // a third of that on a machine that has nothing else to do
		t.Errorf("the server read %d times for %d calls, want them to go together", got, calls)
	}
}

// hanging is a lock client of whose calls so many hang that all others wait for a turn, and go together.
type hanging struct {
	*lock.Client
	t     *testing.T
	rdb   *redis.Client // behind the proxy
	near  *redis.Client // before it
	proxy *faultnet.Proxy
	stuck chan error // what those that hang come to
	thaw  func()     // they go on
}

const atOnce = 40 // more than there may be round trips under way

func hang(t *testing.T, change func(*redis.Options)) *hanging {
	t.Helper()
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy, err := faultnet.Listen(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	hangs, release := make(chan bool, atOnce), make(chan struct{})
	proxy.Watch(func(e faultnet.Exchange) bool {
		if e.Moment == faultnet.Before && bytes.Contains(e.Request, []byte("stuck-")) {
			select {
			case hangs <- true:
			default:
			}
			<-release
		}
		return true
	})
	options, err := redis.ParseURL(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.ReadTimeout, options.MaxRetries, options.PoolSize = callLimit, -1, 2*atOnce
	if change != nil {
		change(options)
	}
	h := &hanging{t: t, rdb: redis.NewClient(options), near: testkit.Client(t, server.URL()), proxy: proxy}
	t.Cleanup(func() { _ = h.rdb.Close() })
	h.Client, h.stuck, h.thaw = lock.New(h.rdb), make(chan error, atOnce), sync.OnceFunc(func() { close(release) })
	t.Cleanup(func() { _ = h.Close() })
	t.Cleanup(h.thaw)
	for i := range atOnce { // one by one: whoever shares a round trip that hangs, hangs
		go func() {
			_, err := h.Mutex(fmt.Sprint("stuck-", i)).TryLock(context.WithoutCancel(t.Context()))
			h.stuck <- err
		}()
		<-hangs
	}
	return h
}

// stillHangs checks that what hangs does so still: nothing was shown by its coming to an end.
func (h *hanging) stillHangs() {
	h.t.Helper()
	select {
	case err := <-h.stuck:
		h.t.Errorf("one that hangs came to an end: %v", err)
	default:
	}
}

// TestACallThatHangsHoldsNobodyUp: connections that hang, more than there may be round trips under way, delay those who come
// later by an instant and no more; and who shares a round trip with an error has nothing to do with it.
func TestACallThatHangsHoldsNobodyUp(t *testing.T) {
	h := hang(t, nil)
	if err := h.near.HSet(t.Context(), "a-hash", "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	each(make([]int, 20), func(i int) {
		if i == 0 {
			if _, err := h.Mutex("a-hash").TryLock(t.Context()); err == nil {
				t.Error("a hash was locked")
			}
			return
		}
		free, err := h.Mutex(fmt.Sprint("free-", i)).Lock(t.Context())
		if err == nil {
			err = free.Unlock(t.Context())
		}
		if err != nil {
			t.Errorf("a lock beside those that hang: %v", err)
		}
	})
	h.stillHangs()
	h.thaw()
	for range atOnce {
		if err := <-h.stuck; err != nil {
			t.Errorf("when it thaws: %v", err)
		}
	}
}

// TestEachCallEndsAtItsOwnDeadline: with a client that ends calls in time, who shares a round trip with one that has no deadline
// does not wait for as long as that one does.
func TestEachCallEndsAtItsOwnDeadline(t *testing.T) {
	h := hang(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	held := must[lock.Hold](t)(h.Mutex("held").Lock(t.Context()))
	h.proxy.Freeze()
	t.Cleanup(h.proxy.Thaw)
	const each = 4
	endless, ends := make(chan error, each), make(chan error, each)
	for i := range each { // both kinds come first and last
		go func() {
			_, err := h.Mutex(fmt.Sprint("endless-", i)).TryLock(context.WithoutCancel(t.Context()))
			endless <- err
		}()
		go func() {
			if i == 0 {
				ends <- held.Unlock(t.Context())
				return
			}
			// The short one has two seconds all the same, the long one comes to its end after that.
			limit := []time.Duration{50 * time.Millisecond, 3 * time.Second}[i%2]
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := h.Mutex(fmt.Sprint("ends-", i)).TryLock(ctx)
			ends <- err
		}()
	}
	for range each {
		if err := <-ends; err == nil {
			t.Error("a call through a dead network has an answer")
		}
	}
	select {
	case err := <-endless:
		t.Errorf("those with a deadline waited for one that has none: %v", err)
	default:
	}
	h.proxy.Thaw()
	for range each {
		if err := <-endless; err != nil {
			t.Errorf("who has no deadline: %v", err)
		}
	}
}

// panics is a hook of a Redis client that panics with every shared round trip of those who want a lock named "free-".
type panics struct{ redis.Hook }

func (panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (panics) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmds[0].Args()...), "free-") {
			panic("a hook")
		}
		return next(ctx, cmds)
	}
}

// TestAPanicEndsItsOwnCallAndStopsNobody: whose calls went with that of one who panics are told so.
func TestAPanicEndsItsOwnCallAndStopsNobody(t *testing.T) {
	h := hang(t, nil)
	h.rdb.AddHook(panics{})
	var panicked, failed atomic.Int32
	each(make([]int, 20), func(i int) {
		defer func() {
			if recover() != nil {
				panicked.Add(1)
			}
		}()
		if _, err := h.Mutex(fmt.Sprint("free-", i)).TryLock(t.Context()); err != nil {
			failed.Add(1)
		}
	})
	if panicked.Load() == 0 || failed.Load() == 0 {
		t.Errorf("%d of 20 panicked and %d failed, want some of both", panicked.Load(), failed.Load())
	}
	h.stillHangs()
}
