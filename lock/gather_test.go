package lock_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
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

// TestACallThatHangsHoldsNobodyUp: connections that hang, more than there may be round trips under way, delay those who come
// later by an instant and no more; and who shares a round trip with an error has nothing to do with it.
func TestACallThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	proxy, err := faultnet.Listen(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	hangs, release := make(chan bool), make(chan struct{})
	proxy.Watch(func(e faultnet.Exchange) bool {
		if e.Moment == faultnet.Before && bytes.Contains(e.Request, []byte("stuck-")) {
			hangs <- true
			<-release
		}
		return true
	})
	t.Cleanup(func() { _ = proxy.Close() })
	options, err := redis.ParseURL(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.ReadTimeout, options.MaxRetries = time.Minute, -1
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	l := lock.New(rdb)
	t.Cleanup(func() { _ = l.Close() })
	if err := testkit.Client(t, server.URL()).HSet(t.Context(), "a-hash", "a", "b").Err(); err != nil {
		t.Fatal(err)
	}

	stuck := make(chan error)
	const hanging = 10
	for i := range hanging { // one by one: whoever shares a round trip that hangs, hangs
		go func() {
			_, err := l.Mutex(fmt.Sprint("stuck-", i)).TryLock(t.Context())
			stuck <- err
		}()
		<-hangs
	}
	each(make([]int, 20), func(i int) {
		if i == 0 {
			if _, err := l.Mutex("a-hash").TryLock(t.Context()); err == nil {
				t.Error("a hash was locked")
			}
			return
		}
		h, err := l.Mutex(fmt.Sprint("free-", i)).Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		if err != nil {
			t.Errorf("a lock beside those that hang: %v", err)
		}
	})
	select {
	case err := <-stuck:
		t.Errorf("one that hangs came to an end: %v", err)
	default:
	}
	close(release)
	for range hanging {
		if err := <-stuck; err != nil {
			t.Errorf("when it thaws: %v", err)
		}
	}
}
