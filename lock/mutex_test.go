package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lock"
)

// mutexes returns both kinds; what is true for one is true for the other unless a test says so.
func (f *fixture) mutexes(l *lock.Client, name string) map[string]lock.Mutex {
	return map[string]lock.Mutex{"mutex": l.Mutex(f.key(name)), "fair": l.FairMutex(f.key(name + "-fair"))}
}

func TestAMutexHasOneHolder(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		first := must(m.Lock(f.ctx))(t)
		wantErr(t, errOf(m.TryLock(f.ctx)), lock.ErrNotAcquired, "%s: the second", name)
		noErr(t, first.Context().Err(), "%s: the holder's context", name)
		f.unlock(first)
		wantErr(t, context.Cause(first.Context()), context.Canceled, "%s: the context after unlock", name)
		second := must(m.TryLock(f.ctx))(t)
		if second.Fence() <= first.Fence() {
			t.Errorf("%s: fence %d after %d", name, second.Fence(), first.Fence())
		}
		wantErr(t, first.Unlock(f.ctx), lock.ErrNotHeld, "%s: unlock twice", name)
		wantErr(t, errOf(m.TryLock(f.ctx)), lock.ErrNotAcquired, "%s: the first holder freed the second one's lock", name)
		f.unlock(second)
	}
}

func TestAnOwnerEntersAgain(t *testing.T) {
	f := newFixture(t)
	a, b := f.client(), f.client()
	o, key := lock.NewOwner(), f.key("a")
	outer := must(a.Mutex(key).Lock(f.ctx, lock.As(o)))(t)
	inner := must(b.Mutex(key).Lock(f.ctx, lock.As(o)))(t) // also on another client
	if inner.Fence() != outer.Fence() {
		t.Errorf("fences %d and %d, want one", outer.Fence(), inner.Fence())
	}
	wantErr(t, errOf(a.Mutex(key).TryLock(f.ctx, lock.As(lock.NewOwner()))), lock.ErrNotAcquired, "another owner")
	f.unlock(outer) // in any order
	wantErr(t, errOf(a.Mutex(key).TryLock(f.ctx)), lock.ErrNotAcquired, "free after one of two unlocks")
	wantErr(t, outer.Unlock(f.ctx), lock.ErrNotHeld, "an entry was left twice")
	f.unlock(inner)
	f.unlock(must(a.Mutex(key).TryLock(f.ctx))(t))
}

// However often a lock changes hands, each fence is higher than the one before, and setting the server's clock back
// changes nothing for as long as the last holder's lease would have lasted.
func TestFencesRise(t *testing.T) {
	f := newFixture(t)
	m, last := f.client().Mutex(f.key("a")), int64(0)
	for range 200 {
		h := must(m.Lock(f.ctx))(t)
		if h.Fence() <= last {
			t.Fatalf("fence %d after %d", h.Fence(), last)
		}
		last = h.Fence()
		f.unlock(h)
	}
	ahead := fmt.Sprint(last + int64(time.Hour/time.Microsecond)) // what a server with a clock an hour ahead would leave
	f.rdb.SetRange(f.ctx, f.key("a"), 0, ahead)
	h := must(m.Lock(f.ctx))(t)
	if got := fmt.Sprint(h.Fence()); got <= ahead || len(got) != len(ahead) {
		t.Errorf("fence %s after %s", got, ahead)
	}
	f.unlock(h)
	if left := f.ttl(f.key("a")); left <= 0 {
		t.Errorf("the key of a free lock lives for %s", left)
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
		first := must(m.Lock(f.ctx))(t)
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
			t.Errorf("%s: a waiter that gave up is still queued", name)
		}
		f.unlock(first)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	first := must(l.Mutex(key).Lock(f.ctx))(t)
	failures := make(chan error, 3)
	other := f.client()
	for range cap(failures) {
		go func() { _, err := other.Mutex(key).Lock(f.ctx); failures <- err }()
	}
	f.awaitQueue(key+":queue", 3)
	check(t, other.Close())
	for range cap(failures) {
		wantErr(t, <-failures, lock.ErrClosed, "")
	}
	f.unlock(first)
}

func TestALeaseIsRenewedAndEndsWithItsWork(t *testing.T) {
	f := newFixture(t)
	const ttl = 300 * time.Millisecond
	l, key := f.client(lock.WithTTL(ttl)), f.key("a")
	ctx, endWork := context.WithCancel(f.ctx)
	h := must(l.Mutex(key).Lock(ctx))(t)
	first := h.ValidUntil()
	testkit.Eventually(t, callLimit, "three renewals", func() bool {
		if h.Context().Err() != nil {
			t.Skip("the machine is too busy for a lease of 300ms")
		}
		return h.ValidUntil().Sub(first) > ttl
	})
	endWork() // and does not unlock
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
	h := must(l.Mutex(key).Lock(f.ctx, lock.Lease(time.Second)))(t)
	select {
	case <-h.Context().Done():
	case <-f.ctx.Done():
		t.Fatal("the context never ended")
	}
	wantErr(t, context.Cause(h.Context()), lock.ErrLeaseLost, "cause ")
	wantErr(t, h.Unlock(f.ctx), lock.ErrNotHeld, "late unlock")
	wantErr(t, h.Extend(f.ctx, time.Second), lock.ErrNotHeld, "late extension")
}

func TestExtend(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	h := must(l.Mutex(key).Lock(f.ctx, lock.Lease(15*time.Second)))(t)
	check(t, h.Extend(f.ctx, time.Minute))
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
	wantErr(t, h.Extend(f.ctx, time.Minute), lock.ErrNotHeld, "extension of a lock that is gone")
	wantErr(t, context.Cause(h.Context()), lock.ErrLeaseLost, "cause ")
}

// The server forgot the lock (a flush, a failover): the renewal finds out, and the work ends.
func TestRenewalFindsOutThatTheLockIsGone(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(lock.WithTTL(600*time.Millisecond)), f.key("a")
	h := must(l.Mutex(key).Lock(f.ctx))(t)
	work := h.Context()
	f.rdb.Set(f.ctx, key, "another's", time.Minute)
	<-work.Done()
	if got := f.rdb.Get(f.ctx, key).Val(); got != "another's" || f.ttl(key) < 30*time.Second {
		t.Errorf("the renewal touched another's lock: %q, %s", got, f.ttl(key))
	}
	wantErr(t, h.Unlock(f.ctx), lock.ErrNotHeld, "unlock")
}

// Names are compared whole: one that starts or ends like ours belongs to another holder.
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
		h := must(l.Mutex(key).Lock(f.ctx))(t)
		want := other(f.rdb.Get(f.ctx, key).Val())
		f.rdb.Set(f.ctx, key, want, time.Minute)
		late := must(l.Mutex(f.key("other")).Lock(f.ctx))(t)
		wantErr(t, h.Unlock(f.ctx), lock.ErrNotHeld, "%q: unlocked", want)
		if got := f.rdb.Get(f.ctx, key).Val(); got != want {
			t.Errorf("%q became %q", want, got)
		}
		wantErr(t, errOf(l.Mutex(key).TryLock(f.ctx)), lock.ErrNotAcquired, "%q: taken", want)
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
	f.unlock(must(m.TryLock(f.ctx))(t)) // a panic freed it
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
						noErr(t, err)
					}
				})
			}
		}
		wg.Wait()
	}
}
