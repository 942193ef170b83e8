package lock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

// clusterFixture is the tests' shared Redis Cluster, with keys of the test's own on every node.
type clusterFixture struct {
	*fixture
	cluster *redis.ClusterClient
}

func newClusterFixture(t *testing.T) *clusterFixture {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	t.Cleanup(cancel)
	cluster := testkit.RedisCluster(t)
	return &clusterFixture{&fixture{T: t, ctx: ctx, rdb: cluster, prefix: t.Name() + "-" + rand.Text()}, cluster}
}

// client is a lock client with connections, and so a subscription, of its own, on any of the nodes.
func (f *clusterFixture) client(options ...lock.Option) *lock.Client {
	f.Helper()
	l := lock.New(testkit.RedisCluster(f.T), options...)
	f.Cleanup(func() {
		noErr(f, l.Close(), "close")
	})
	return l
}

// keys returns two keys for each node: one without a hash tag and one with.
func (f *clusterFixture) keys(name string) []string {
	f.Helper()
	var keys []string
	for _, pattern := range []string{"%s:%s:%d", "%s:{%s:%d}:lock"} {
		nodes := map[string]bool{}
		for i := 0; len(nodes) < 3; i++ {
			key := fmt.Sprintf(pattern, f.prefix, name, i)
			if node := f.nodeOf(key); !nodes[node] {
				nodes[node] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (f *clusterFixture) nodeOf(key string) string {
	f.Helper()
	node := must(f.cluster.MasterForKey(f.ctx, key))(f)
	return node.Options().Addr
}

// queueOf returns the key of a lock's queue.
func (f *clusterFixture) queueOf(key string) string {
	f.Helper()
	for _, queue := range []string{key + ":queue", "{" + key + "}:queue"} {
		if f.slot(queue) == f.slot(key) {
			return queue
		}
	}
	f.Fatalf("no queue of %s lies in its slot", key)
	return ""
}

func (f *clusterFixture) slot(key string) int64 { return f.cluster.ClusterKeySlot(f.ctx, key).Val() }

// waiting waits until a lock has a waiter.
func (f *clusterFixture) waiting(key string) {
	f.Helper()
	queue := f.queueOf(key)
	testkit.Eventually(f, callLimit, "a waiter for "+key, func() bool { return f.rdb.Exists(f.ctx, queue).Val() == 1 })
}

func TestMutexesOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	a, b := f.client(), f.client()
	for kind, mutex := range map[string]func(*lock.Client, string) lock.Mutex{
		"mutex": (*lock.Client).Mutex, "fair": (*lock.Client).FairMutex,
	} {
		for _, key := range f.keys(kind) {
			owner := lock.NewOwner()
			outer := must(mutex(a, key).Lock(f.ctx, lock.As(owner)))(t)
			inner := must(mutex(b, key).Lock(f.ctx, lock.As(owner)))(t)
			if inner.Fence() != outer.Fence() {
				t.Errorf("%s: one owner has the fences %d and %d", key, outer.Fence(), inner.Fence())
			}
			wantErr(t, errOf(mutex(b, key).TryLock(f.ctx)), lock.ErrNotAcquired, "%s", key)
			next := f.later(mutex(b, key).Lock)
			f.waiting(key)
			f.unlock(outer)
			f.unlock(inner)
			h := f.taken(next)
			if h.Fence() <= outer.Fence() {
				t.Errorf("%s: fence %d after %d", key, h.Fence(), outer.Fence())
			}
			wantErr(t, errOf(mutex(a, key).TryLock(f.ctx)), lock.ErrNotAcquired, "%s after the transfer", key)
			f.unlock(h)
			f.unlock(must(mutex(a, key).TryLock(f.ctx))(t))
		}
	}
}

// A dead waiter is not recognized as such on a cluster: it costs its claim TTL, then the next one gets the lock.
func TestADeadWaiterOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	l := f.client()
	key := f.keys("a")[0]
	first := must(l.Mutex(key).Lock(f.ctx))(t)
	check(t, f.rdb.ZAdd(f.ctx, f.queueOf(key), z(1, "dead dead nobody")).Err())
	next := f.later(f.client().Mutex(key).Lock)
	f.awaitQueue(f.queueOf(key), 2)
	f.unlock(first)
	f.unlock(f.taken(next))
}

func TestReadersAndWritersOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	a, b := f.client(), f.client()
	for _, key := range f.keys("rw") {
		reader, other := must(a.RWMutex(key).RLock(f.ctx))(t), must(b.RWMutex(key).RLock(f.ctx))(t)
		wantErr(t, errOf(b.RWMutex(key).TryLock(f.ctx)), lock.ErrNotAcquired, "%s", key)
		next := f.later(b.RWMutex(key).Lock)
		f.waiting(key)
		wantErr(t, errOf(a.RWMutex(key).TryRLock(f.ctx)), lock.ErrNotAcquired, "%s behind a waiting writer", key)
		f.unlock(reader)
		f.unlock(other)
		writer := f.taken(next)
		if writer.Fence() == 0 {
			t.Errorf("%s: a writer without a fence", key)
		}
		last := f.later(a.RWMutex(key).RLock)
		f.waiting(key)
		f.unlock(writer)
		f.unlock(f.taken(last))
		again := must(a.RWMutex(key).Lock(f.ctx))(t)
		if again.Fence() <= writer.Fence() {
			t.Errorf("%s: fence %d after %d", key, again.Fence(), writer.Fence())
		}
		f.unlock(again)
	}
}

func TestPermitsOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	a, b := f.client(), f.client()
	for _, key := range f.keys("permits") {
		two := must(a.Semaphore(key, 3).Acquire(f.ctx, 2))(t)
		one := must(b.Semaphore(key, 3).Lock(f.ctx))(t)
		wantErr(t, errOf(b.Semaphore(key, 3).TryLock(f.ctx)), lock.ErrNotAcquired, "%s", key)
		next := f.later(b.Semaphore(key, 3).Lock)
		f.waiting(key)
		f.unlock(two)
		f.unlock(f.taken(next))
		f.unlock(one)

		first := must(a.ExpirableSemaphore(key, 1).Acquire(f.ctx, time.Hour))(t)
		other := b.ExpirableSemaphore(key, 1)
		wantErr(t, errOf(other.TryAcquire(f.ctx, time.Hour)), lock.ErrNotAcquired, "%s with an end", key)
		until := must(other.Extend(f.ctx, first.ID, 3*time.Hour))(t)
		if !until.After(first.ValidUntil) {
			t.Errorf("%s: extended from %s to %s", key, first.ValidUntil, until)
		}
		second := make(chan error, 1)
		go func() {
			_, err := a.ExpirableSemaphore(key, 1).Acquire(f.ctx, time.Hour)
			second <- err
		}()
		f.waiting(key)
		noErr(t, other.Release(f.ctx, first.ID), "%s: release", key)
		noErr(t, <-second, "%s: the second", key)
	}
}

func TestLatchesOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	a, b := f.client(), f.client()
	for _, key := range f.keys("latch") {
		opened := make(chan error, 1)
		go func() { opened <- b.CountDownLatch(key, 2, time.Hour).Wait(f.ctx) }()
		f.waiting(key)
		for i, party := range []string{"one", "two"} {
			if missing := must(a.CountDownLatch(key, 2, time.Hour).CountDown(f.ctx, party))(t); missing != int64(1-i) {
				t.Errorf("%s: %d are missing after %s", key, missing, party)
			}
		}
		noErr(t, <-opened, "%s", key)
		wantErr(t, errOf(a.CountDownLatch(key, 3, time.Hour).Missing(f.ctx)), lock.ErrCountDiffers, "%s: another count", key)
	}
}

// All takes locks on every node, and is lost with one of them.
func TestAllOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	l, other := f.client(lock.WithTTL(3*time.Second)), f.client()
	keys := f.keys("all")
	locks := []lock.Locker{
		l.Mutex(keys[0]), l.FairMutex(keys[1]), l.RWMutex(keys[2]), l.RWMutex(keys[3]).RLocker(), l.Semaphore(keys[4], 1),
		l.Mutex(keys[5]),
	}
	all := must(lock.All(locks...).Lock(f.ctx))(t)
	next := f.later(other.Mutex(keys[5]).Lock)
	f.waiting(keys[5])
	f.unlock(all)
	f.unlock(f.taken(next))

	all = must(lock.All(locks...).Lock(f.ctx))(t)
	work := all.Context()
	check(t, f.rdb.Del(f.ctx, keys[2]).Err())
	<-work.Done()
	wantErr(t, context.Cause(work), lock.ErrLeaseLost, "cause")
}

// A batch lies in one slot; one that doesn't is refused by the server, and nothing of it is taken.
func TestBatchesOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	l := f.client()
	for i, one := range f.keys("batch") {
		tag := fmt.Sprintf("{%s:%d}", f.prefix, i)
		if i < 3 {
			tag = "{" + one + "}" // beside a key without a tag
		}
		keys := []string{tag + ":a", tag + ":b", tag + ":c"}
		batch := must(l.TryLockMany(f.ctx, keys))(t)
		again := must(l.TryLockMany(f.ctx, keys[1:], lock.AllOrNone))(t)
		if slices.Contains(again.Held, true) || slices.Contains(batch.Held, false) {
			t.Errorf("%s: held %v, then %v", tag, batch.Held, again.Held)
		}
		noErr(t, l.UnlockMany(f.ctx, keys, batch.Token), "unlock")
		if left := f.rdb.Exists(f.ctx, keys...).Val(); left != 0 {
			t.Errorf("%s: %d locks are left", tag, left)
		}
	}
	several := f.keys("several")
	if _, err := l.TryLockMany(f.ctx, several); !redis.HasErrorPrefix(err, "CROSSSLOT") {
		t.Errorf("keys in several slots: got %v, want CROSSSLOT", err)
	}
	for _, key := range several {
		if f.rdb.Exists(f.ctx, key).Val() != 0 {
			t.Errorf("%s was taken nevertheless", key)
		}
	}
}

func TestRunOnceOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	clients := []*lock.Client{f.client(), f.client()}
	for _, key := range f.keys("job") {
		runs := 0
		for _, l := range clients {
			noErr(t, errOf(l.RunOnce(f.ctx, key, time.Hour, func(context.Context) error { runs++; return nil })))
		}
		if runs != 1 {
			t.Errorf("%s: %d runs in one tick", key, runs)
		}
	}
}

// Locks of every kind and on every node are renewed, each slot's in a call of its own.
func TestLeasesAreRenewedOnACluster(t *testing.T) {
	f := newClusterFixture(t)
	const ttl = 6 * time.Second // so long that no busy machine loses it; the first renewals come after a third
	l := f.client(lock.WithTTL(ttl))
	var holds []lock.Hold
	for i, key := range f.keys("renewed") {
		takers := []lock.Locker{l.Mutex(key), l.RWMutex(key), l.Semaphore(key, 2)}
		holds = append(holds, must(takers[i%len(takers)].Lock(f.ctx))(t))
	}
	untils := make([]time.Time, len(holds))
	for i, h := range holds {
		untils[i] = h.ValidUntil()
	}
	for i, h := range holds {
		renewed := func() bool { return h.ValidUntil().After(untils[i]) }
		testkit.Eventually(t, callLimit, fmt.Sprintf("lease %d to be renewed", i), renewed)
		noErr(t, h.Context().Err(), "lease %d", i)
		f.unlock(h)
	}
}

// Waiters are woken by a message from any node: far sooner than by polling, which is all that is left where the lock
// disappeared without a message.
func TestWaitersAreWokenAcrossNodes(t *testing.T) {
	f := newClusterFixture(t)
	holder, waiter := f.client(), f.client()
	wait := func(key string, free func(lock.Hold)) time.Duration {
		h := must(holder.Mutex(key).Lock(f.ctx))(t)
		next := f.later(waiter.Mutex(key).Lock)
		f.waiting(key)
		began := time.Now()
		free(h)
		got := f.taken(next)
		took := time.Since(began)
		f.unlock(got)
		return took
	}
	keys := f.keys("woken")[:3]
	var polled time.Duration // the longest of several: a waiter may be about to poll
	for _, key := range keys {
		polled = max(polled, wait(key, func(lock.Hold) { f.rdb.Del(f.ctx, key) }))
	}
	for _, key := range keys {
		fastest := polled
		for range 5 {
			fastest = min(fastest, wait(key, f.unlock))
		}
		if fastest > polled/3 {
			t.Errorf("a lock on %s: the fastest transfer took %s, polling %s", f.nodeOf(key), fastest, polled)
		}
	}
}
