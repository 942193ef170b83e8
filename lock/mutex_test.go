package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lock"
)

// client is a lock client that ends with the test.
func (f *fixture) client(options ...lock.Option) *lock.Client {
	f.Helper()
	l := lock.New(f.rdb, options...)
	f.Cleanup(func() {
		if err := l.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
	})
	return l
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (f *fixture) unlock(h lock.Hold) {
	f.Helper()
	if err := h.Unlock(f.ctx); err != nil {
		f.Errorf("unlock: %v", err)
	}
}

// mutexes are the two kinds; what holds for one holds for the other unless a test says so.
func (f *fixture) mutexes(l *lock.Client, name string) map[string]lock.Mutex {
	return map[string]lock.Mutex{"mutex": l.Mutex(f.key(name)), "fair": l.FairMutex(f.key(name + "-fair"))}
}

func TestAMutexHasOneHolder(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		if _, err := m.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: the second: %v, want ErrNotAcquired", name, err)
		}
		if err := first.Context().Err(); err != nil {
			t.Errorf("%s: the holder's context: %v", name, err)
		}
		f.unlock(first)
		if err := context.Cause(first.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the context after unlock: %v", name, err)
		}
		second := must[lock.Hold](t)(m.TryLock(f.ctx))
		if second.Fence() <= first.Fence() {
			t.Errorf("%s: fence %d after %d", name, second.Fence(), first.Fence())
		}
		if err := first.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%s: unlock twice: %v, want ErrNotHeld", name, err)
		}
		if _, err := m.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: the first holder freed the second one's lock", name)
		}
		f.unlock(second)
	}
}

func TestAnOwnerEntersAgain(t *testing.T) {
	f := newFixture(t)
	a, b := f.client(), f.client()
	o, key := lock.NewOwner(), f.key("a")
	outer := must[lock.Hold](t)(a.Mutex(key).Lock(f.ctx, lock.As(o)))
	inner := must[lock.Hold](t)(b.Mutex(key).Lock(f.ctx, lock.As(o))) // on another client, too
	if inner.Fence() != outer.Fence() {
		t.Errorf("fences %d and %d, want one", outer.Fence(), inner.Fence())
	}
	if _, err := a.Mutex(key).TryLock(f.ctx, lock.As(lock.NewOwner())); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("another owner: %v", err)
	}
	f.unlock(outer) // in any order
	if _, err := a.Mutex(key).TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Error("free after one of two unlocks")
	}
	if err := outer.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("an entry was left twice: %v", err)
	}
	f.unlock(inner)
	f.unlock(must[lock.Hold](t)(a.Mutex(key).TryLock(f.ctx)))
}

// However often a lock changes hands, each fence tops the one before, and the clock of the server set back changes nothing
// while the last holder's lease would have lasted.
func TestFencesRise(t *testing.T) {
	f := newFixture(t)
	m, last := f.client().Mutex(f.key("a")), int64(0)
	for range 200 {
		h := must[lock.Hold](t)(m.Lock(f.ctx))
		if h.Fence() <= last {
			t.Fatalf("fence %d after %d", h.Fence(), last)
		}
		last = h.Fence()
		f.unlock(h)
	}
	ahead := fmt.Sprint(last + int64(time.Hour/time.Microsecond)) // what a server with a clock an hour ahead would leave
	f.rdb.SetRange(f.ctx, f.key("a"), 0, ahead)
	h := must[lock.Hold](t)(m.Lock(f.ctx))
	if got := fmt.Sprint(h.Fence()); got <= ahead || len(got) != len(ahead) {
		t.Errorf("fence %s after %s", got, ahead)
	}
	f.unlock(h)
	if left := f.ttl(f.key("a")); left <= 0 {
		t.Errorf("the key of a free lock lives for %s", left)
	}
}

func TestLockIsHandedOverInOrder(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		const waiters = 60
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		var order []int // guarded by the lock itself
		var wg sync.WaitGroup
		queue := f.queueOf(m, name)
		for i := range waiters {
			wg.Go(func() {
				h, err := m.Lock(f.ctx)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				f.unlock(h)
			})
			testkit.Eventually(t, callLimit, "a waiter to queue", func() bool { return f.rdb.ZCard(f.ctx, queue).Val() == int64(i+1) })
		}
		f.unlock(first)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != waiters {
			t.Errorf("%s: order %v", name, order)
		}
		if n := f.rdb.Exists(f.ctx, queue).Val(); n != 0 {
			t.Errorf("%s: a queue is left", name)
		}
	}
}

func (f *fixture) queueOf(_ lock.Mutex, name string) string {
	if name == "fair" {
		return f.key("a-fair") + ":queue"
	}
	return f.key("a") + ":queue"
}

func TestAWaitEnds(t *testing.T) {
	f := newFixture(t)
	l := f.client()
	for name, m := range f.mutexes(l, "a") {
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		_, err := m.Lock(f.ctx, lock.Wait(50*time.Millisecond))
		if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: wait: %v", name, err)
		}
		ctx, cancel := context.WithCancelCause(f.ctx)
		reason := errors.New("we close")
		time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
		if _, err := m.Lock(ctx); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, reason) {
			t.Errorf("%s: cancelled: %v", name, err)
		}
		if n := f.rdb.Exists(f.ctx, f.queueOf(m, name)).Val(); n != 0 {
			t.Errorf("%s: who gave up still waits", name)
		}
		f.unlock(first)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	first := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx))
	failures := make(chan error, 3)
	other := f.client()
	for range cap(failures) {
		go func() { _, err := other.Mutex(key).Lock(f.ctx); failures <- err }()
	}
	testkit.Eventually(t, callLimit, "three to wait", func() bool { return f.rdb.ZCard(f.ctx, key+":queue").Val() == 3 })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for range cap(failures) {
		if err := <-failures; !errors.Is(err, lock.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	f.unlock(first)
}

// A waiter that died without a word (its connection is gone) is passed over at once.
func TestTheDeadArePassedOver(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		queue := f.queueOf(m, name)
		for i := range 50 {
			f.rdb.ZAdd(f.ctx, queue, z(float64(i), fmt.Sprintf("dead%d dead%d nobody", i, i)))
		}
		done := make(chan error, 1)
		go func() {
			h, err := m.Lock(f.ctx)
			if err == nil {
				err = h.Unlock(f.ctx)
			}
			done <- err
		}()
		testkit.Eventually(t, callLimit, "the waiter", func() bool { return f.rdb.ZCard(f.ctx, queue).Val() == 51 })
		f.unlock(first)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One who was handed the lock and never came (its machine is gone, its connection seems alive) costs its claim.
func TestOneWhoNeverClaimsCostsItsClaim(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		sub := f.rdb.Subscribe(f.ctx, "deaf-"+name)
		must[any](t)(sub.Receive(f.ctx))
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		f.rdb.ZAdd(f.ctx, f.queueOf(m, name), z(1, "deaf deaf deaf-"+name))
		done := make(chan error, 1)
		go func() { _, err := m.Lock(f.ctx); done <- err }()
		testkit.Eventually(t, callLimit, "the waiter", func() bool { return f.rdb.ZCard(f.ctx, f.queueOf(m, name)).Val() == 2 })
		f.unlock(first)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestALeaseIsRenewedAndEndsWithItsWork(t *testing.T) {
	f := newFixture(t)
	const ttl = 300 * time.Millisecond
	l, key := f.client(lock.WithTTL(ttl)), f.key("a")
	ctx, endWork := context.WithCancel(f.ctx)
	h := must[lock.Hold](t)(l.Mutex(key).Lock(ctx))
	first := h.ValidUntil()
	testkit.Eventually(t, callLimit, "three renewals", func() bool {
		if h.Context().Err() != nil {
			t.Skip("the machine is too busy for a lease of 300ms")
		}
		return h.ValidUntil().Sub(first) > ttl
	})
	endWork() // nobody unlocks
	testkit.Eventually(t, callLimit, "the lock to be free", func() bool {
		other, err := l.Mutex(key).TryLock(f.ctx)
		if err == nil {
			f.unlock(other)
		}
		return err == nil
	})
}

func TestALeaseOfOnesOwnIsNotRenewed(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	h := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx, lock.Lease(time.Second)))
	select {
	case <-h.Context().Done():
	case <-f.ctx.Done():
		t.Fatal("the context never ended")
	}
	if err := context.Cause(h.Context()); !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("cause %v, want ErrLeaseLost", err)
	}
	if err := h.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("late unlock: %v, want ErrNotHeld", err)
	}
	if err := h.Extend(f.ctx, time.Second); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("late extension: %v, want ErrNotHeld", err)
	}
}

func TestExtend(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	h := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx, lock.Lease(15*time.Second)))
	if err := h.Extend(f.ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(h.ValidUntil()); left < 40*time.Second {
		t.Errorf("valid for %s", left)
	}
	if left := f.ttl(key); left < 40*time.Second {
		t.Errorf("the key lives for %s", left)
	}
	if err := h.Extend(f.ctx, time.Second); err != nil || time.Until(h.ValidUntil()) < 40*time.Second {
		t.Errorf("a shorter extension: %v, valid for %s: it must change nothing", err, time.Until(h.ValidUntil()))
	}
	f.rdb.Del(f.ctx, key)
	if err := h.Extend(f.ctx, time.Minute); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("extension of a lock that is gone: %v", err)
	}
	if err := context.Cause(h.Context()); !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("cause %v, want ErrLeaseLost", err)
	}
}

// The server forgot the lock (a flush, a failover): the renewal finds out, and the work ends.
func TestRenewalFindsOutThatTheLockIsGone(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(lock.WithTTL(600*time.Millisecond)), f.key("a")
	h := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx))
	work := h.Context()
	f.rdb.Set(f.ctx, key, "another's", time.Minute)
	<-work.Done()
	if got := f.rdb.Get(f.ctx, key).Val(); got != "another's" || f.ttl(key) < 30*time.Second {
		t.Errorf("the renewal touched another's lock: %q, %s", got, f.ttl(key))
	}
	if err := h.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("unlock: %v, want ErrNotHeld", err)
	}
}

// Names are compared whole: one that begins or ends like ours is another's.
func TestNamesAreComparedWhole(t *testing.T) {
	f := newFixture(t)
	l := f.client()
	spoil := []func(string) string{
		func(value string) string { return value + "x" },
		func(value string) string { return value[:len(value)-1] },
		func(value string) string { return value[:17] + "x" + value[17:] },
		func(value string) string { return value[:17] + value[18:] }, // the fence, then a name that lacks its first letter
	}
	for i, other := range spoil {
		key := f.key(fmt.Sprint(i))
		h := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx))
		want := other(f.rdb.Get(f.ctx, key).Val())
		f.rdb.Set(f.ctx, key, want, time.Minute)
		late := must[lock.Hold](t)(l.Mutex(f.key("other")).Lock(f.ctx))
		if err := h.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%q: unlocked, %v", want, err)
		}
		if got := f.rdb.Get(f.ctx, key).Val(); got != want {
			t.Errorf("%q became %q", want, got)
		}
		if _, err := l.Mutex(key).TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%q: taken, %v", want, err)
		}
		f.unlock(late)
	}
}

func TestDo(t *testing.T) {
	f := newFixture(t)
	l, failure := f.client(), errors.New("the work failed")
	m := l.Mutex(f.key("a"))
	err := lock.Do(f.ctx, m, func(ctx context.Context, fence int64) error {
		if _, err := m.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) || fence == 0 || ctx.Err() != nil {
			t.Errorf("inside: %v, fence %d, %v", err, fence, ctx.Err())
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want the work's error", err)
	}
	err = lock.Do(f.ctx, m, func(ctx context.Context, _ int64) error { <-ctx.Done(); return nil }, lock.Lease(time.Second))
	if !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("work that outlived its lease: %v, want ErrLeaseLost", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = lock.Do(f.ctx, m, func(context.Context, int64) error { panic("oh") })
	}()
	f.unlock(must[lock.Hold](t)(m.TryLock(f.ctx))) // a panic freed it
}

// Many goroutines of many clients increase a number that only the lock protects.
func TestMutualExclusion(t *testing.T) {
	f := newFixture(t)
	for name := range f.mutexes(f.client(), "a") {
		const clients, each, rounds = 4, 5, 20
		var inside atomic.Int32
		var wg sync.WaitGroup
		for range clients {
			l := f.client()
			m := f.mutexes(l, "a")[name]
			for range each {
				wg.Go(func() {
					for range rounds {
						err := lock.Do(f.ctx, m, func(context.Context, int64) error {
							if inside.Add(1) != 1 {
								t.Errorf("%s: two inside", name)
							}
							inside.Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
	}
}

// What is handed over soon after we queued is ours without a further call: its fence is in the message. Renewal claims it,
// from the second that it is kept for to the whole lease.
func TestAHandOverNeedsNoClaim(t *testing.T) {
	t.Parallel()
	f := &fixture{T: t, ctx: t.Context(), rdb: testkit.Client(t, testkit.PrivateRedis(t, "appendonly no").URL()), prefix: "own"}
	l, key := f.client(), f.key("a")
	for range 10 { // a machine that stands still for half a second makes the waiter ask after all
		first := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx))
		got := make(chan lock.Hold, 1)
		go func() {
			h, err := l.Mutex(key).Lock(f.ctx)
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		testkit.Eventually(t, callLimit, "the waiter", func() bool { return f.rdb.ZCard(f.ctx, key+":queue").Val() == 1 })
		before := f.commands()
		f.unlock(first)
		h := <-got
		if h == nil {
			return
		}
		left := f.ttl(key)
		sent := f.commands() - before // read last: what is claimed before is among it
		until := time.Until(h.ValidUntil())
		if h.Fence() <= first.Fence() {
			t.Fatalf("fence %d after %d", h.Fence(), first.Fence())
		}
		if sent > 1 {
			f.unlock(h)
			continue
		}
		if until > time.Second || left > time.Second {
			t.Errorf("nobody claimed it, and it is believed for %s, kept for %s", until, left)
		}
		testkit.Eventually(t, callLimit, "renewal", func() bool { return f.ttl(key) > time.Second })
		if err := h.Context().Err(); err != nil {
			t.Error(err)
		}
		f.unlock(h)
		return
	}
	t.Error("each of ten hand-overs cost more than the call that unlocks")
}

// A message that comes late, or from nowhere, is not believed once a lock that it told of may have been lost again.
func TestALateMessageIsNotBelieved(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	first := must[lock.Hold](t)(l.Mutex(key).Lock(f.ctx))
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(f.ctx)
	go func() { _, err := l.Mutex(key).Lock(ctx); got <- err }()
	var waiter []string
	testkit.Eventually(t, callLimit, "the waiter", func() bool {
		waiter = strings.Fields(strings.Join(f.rdb.ZRange(f.ctx, key+":queue", 0, -1).Val(), ""))
		return len(waiter) == 3
	})
	time.Sleep(600 * time.Millisecond) // not to wait for something: the message has to be so old
	for range 3 {
		if heard := f.rdb.Publish(f.ctx, waiter[2], waiter[1]+" 9000000000000000").Val(); heard != 1 {
			t.Fatalf("%d heard it", heard)
		}
		select {
		case err := <-got:
			t.Fatalf("it was believed: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := first.Context().Err(); err != nil {
		t.Errorf("the holder: %v", err)
	}
	f.unlock(first)
	if err := <-got; err != nil {
		t.Error(err)
	}
	cancel()
}

// A lock that is handed over after a wait that was longer than the client's TTL is as good as any.
func TestAHandOverAfterALongerWaitThanTheTTL(t *testing.T) {
	f := newFixture(t)
	const ttl, tries = 400 * time.Millisecond, 5
	holder, waiter := f.client(), f.client(lock.WithTTL(ttl))
	lost := 0
	for try := range tries {
		key := f.key(fmt.Sprint(try))
		h := must[lock.Hold](t)(holder.Mutex(key).Lock(f.ctx))
		time.AfterFunc(ttl+ttl/20, func() { _ = h.Unlock(f.ctx) })
		next, err := waiter.Mutex(key).Lock(f.ctx)
		if err != nil {
			t.Log(err)
			lost++
			continue
		}
		_ = next.Unlock(f.ctx)
	}
	if lost > tries/2 { // a busy machine may lose one
		t.Errorf("%d of %d were lost before they began", lost, tries)
	}
}
