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

// TestACrowdSharesRoundTrips: the calls of many goroutines at once reach the server in fewer reads than there are
// calls.
func TestACrowdSharesRoundTrips(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	l := lock.New(rdb)
	t.Cleanup(func() { _ = l.Close() })
	reads := func() int {
		info := must(rdb.Info(t.Context(), "stats").Result())(t)
		_, after, _ := strings.Cut(info, "total_reads_processed:")
		text, _, _ := strings.Cut(after, "\r")
		n := must(strconv.Atoi(text))(t)
		return n
	}
	const crowd, pairs = 64, 50
	before := reads()
	each(make([]int, crowd), func(i int) {
		m := l.Mutex(fmt.Sprint("own-", i))
		for range pairs {
			noErr(t, lockAndUnlock(t.Context(), m))
		}
	})
	const calls = 2 * crowd * pairs
	if got := reads() - before; got > calls*5/6 { // a third of that on an idle machine
		t.Errorf("the server read %d times for %d calls, want them to go together", got, calls)
	}
}

// hanging is a lock client with so many calls hanging that all others wait for a turn and share a round trip.
type hanging struct {
	*lock.Client
	t     *testing.T
	rdb   *redis.Client // behind the proxy
	near  *redis.Client // before it
	proxy *faultnet.Proxy
	stuck chan error // the results of the hanging calls
	thaw  func()     // lets the hanging calls go on
}

const atOnce = 40 // more than may be in flight

func hang(t *testing.T, change func(*redis.Options)) *hanging {
	t.Helper()
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy := must(faultnet.Listen(server.URL()))(t)
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
	options := must(redis.ParseURL(proxy.URL()))(t)
	options.ReadTimeout, options.MaxRetries, options.PoolSize = callLimit, -1, 2*atOnce
	if change != nil {
		change(options)
	}
	h := &hanging{t: t, rdb: redis.NewClient(options), near: testkit.Client(t, server.URL()), proxy: proxy}
	t.Cleanup(func() { _ = h.rdb.Close() })
	h.Client, h.stuck, h.thaw = lock.New(h.rdb), make(chan error, atOnce), sync.OnceFunc(func() { close(release) })
	t.Cleanup(func() { _ = h.Close() })
	t.Cleanup(h.thaw)
	for i := range atOnce { // one by one: a call that shares a hanging round trip hangs, too
		go func() {
			_, err := h.Mutex(fmt.Sprint("stuck-", i)).TryLock(context.WithoutCancel(t.Context()))
			h.stuck <- err
		}()
		<-hangs
	}
	return h
}

// stillHangs checks that the hanging calls still hang: otherwise the test has shown nothing.
func (h *hanging) stillHangs() {
	h.t.Helper()
	select {
	case err := <-h.stuck:
		h.t.Errorf("one that hangs came to an end: %v", err)
	default:
	}
}

// TestACallThatHangsHoldsNobodyUp: hanging connections, more than may be in flight, delay later calls by an instant
// only; and a call that shares a round trip with a failing one is not affected.
func TestACallThatHangsHoldsNobodyUp(t *testing.T) {
	h := hang(t, nil)
	check(t, h.near.HSet(t.Context(), "a-hash", "a", "b").Err())
	each(make([]int, 20), func(i int) {
		if i == 0 {
			if _, err := h.Mutex("a-hash").TryLock(t.Context()); err == nil {
				t.Error("a hash was locked")
			}
			return
		}
		noErr(t, lockAndUnlock(t.Context(), h.Mutex(fmt.Sprint("free-", i))), "a lock beside calls that hang")
	})
	h.stillHangs()
	h.thaw()
	for range atOnce {
		noErr(t, <-h.stuck, "when it thaws")
	}
}

// TestEachCallEndsAtItsOwnDeadline: with a client that ends calls in time, a call that shares a round trip with one
// that has no deadline ends at its own.
func TestEachCallEndsAtItsOwnDeadline(t *testing.T) {
	h := hang(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	held := must(h.Mutex("held").Lock(t.Context()))(t)
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
			// The short one has two seconds in any case, the long one ends after that.
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
		noErr(t, <-endless, "who has no deadline")
	}
}

// panics is a hook of a Redis client that panics with every shared round trip whose first lock is named "free-".
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

// TestAPanicEndsItsOwnCallAndStopsNobody: calls in one batch with a call that panics get an error.
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
