package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lock"
)

func TestReadersShareAndWritersDoNot(t *testing.T) {
	f := newFixture(t)
	m := f.client().RWMutex(f.key("a"))
	a, b := must(m.RLock(f.ctx))(t), must(m.RLock(f.ctx))(t)
	wantErr(t, errOf(m.TryLock(f.ctx)), lock.ErrNotAcquired, "a writer among readers")
	if a.Fence() != 0 {
		t.Errorf("a reader has the fence %d", a.Fence())
	}
	f.unlock(a)
	f.unlock(b)
	wantErr(t, a.Unlock(f.ctx), lock.ErrNotHeld, "unlock twice")
	w := must(m.TryLock(f.ctx))(t)
	wantErr(t, errOf(m.TryRLock(f.ctx)), lock.ErrNotAcquired, "a reader beside a writer")
	wantErr(t, errOf(m.TryLock(f.ctx)), lock.ErrNotAcquired, "a second writer")
	f.unlock(w)
	next := must(m.Lock(f.ctx))(t)
	if next.Fence() <= w.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), w.Fence())
	}
	f.unlock(next)
}

// A waiting writer is next, however many readers come later; and they are next after it, all at once.
func TestWritersAreNotStarved(t *testing.T) {
	f := newFixture(t)
	key := f.key("a")
	m := f.client().RWMutex(key)
	reader := must(m.RLock(f.ctx))(t)
	wrote := f.later(m.Lock)
	f.awaitQueue(key+":queue", 1)
	wantErr(t, errOf(m.TryRLock(f.ctx)), lock.ErrNotAcquired, "a reader overtook the waiting writer")
	const many = 10
	reads := make(chan lock.Hold, many)
	for range many {
		go func() { h, _ := m.RLock(f.ctx); reads <- h }()
	}
	f.awaitQueue(key+":queue", 1+many)
	f.unlock(reader)
	w := <-wrote
	if w == nil || len(reads) > 0 {
		t.Fatalf("the writer has %v, %d readers came before", w, len(reads))
	}
	f.unlock(w)
	var all []lock.Hold
	for range many { // they all hold it at once
		all = append(all, <-reads)
	}
	for _, h := range all {
		f.unlock(h)
	}
}

func TestPermits(t *testing.T) {
	f := newFixture(t)
	s := f.client().Semaphore(f.key("a"), 3)
	two, one := must(s.Acquire(f.ctx, 2))(t), must(s.Lock(f.ctx))(t)
	wantErr(t, errOf(s.TryLock(f.ctx)), lock.ErrNotAcquired, "a fourth of three")
	f.unlock(two)
	wantErr(t, errOf(s.TryAcquire(f.ctx, 3)), lock.ErrNotAcquired, "three of two")
	f.unlock(must(s.TryAcquire(f.ctx, 2))(t))
	f.unlock(one)
	f.unlock(must(s.TryAcquire(f.ctx, 3))(t))
}

// However many want permits, some of them for longer than their lease, never more than n are held at once.
func TestASemaphoreIsNeverAboveItsBound(t *testing.T) {
	f := newFixture(t)
	const permits, clients, each, rounds = 5, 4, 6, 12
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		s := f.client().Semaphore(f.key("a"), permits)
		for i := range each {
			count := int64(1 + i%3)
			wg.Go(func() {
				for range rounds {
					h, err := s.Acquire(f.ctx, count)
					if err != nil {
						t.Error(err)
						return
					}
					if now := inside.Add(count); now > permits {
						t.Errorf("%d of %d permits are held", now, permits)
					}
					most.Store(max(most.Load(), inside.Load()))
					time.Sleep(time.Millisecond) // so that they overlap
					inside.Add(-count)
					f.unlock(h)
				}
			})
		}
	}
	wg.Wait()
	if most.Load() < 2 {
		t.Errorf("at most %d at once: nothing was shared", most.Load())
	}
}

// A permit of a holder that died is free when its lease is over.
func TestPermitsOfTheDeadComeBack(t *testing.T) {
	f := newFixture(t)
	s := f.client().Semaphore(f.key("a"), 2)
	dead := lock.New(f.rdb, lock.WithTTL(2*time.Second))
	for range 2 {
		must(dead.Semaphore(f.key("a"), 2).Lock(f.ctx))(t)
	}
	check(t, dead.Close()) // it neither renews nor unlocks
	f.unlock(must(s.Acquire(f.ctx, 2))(t))
}

func TestSharesAreRenewed(t *testing.T) {
	f := newFixture(t)
	const ttl = 500 * time.Millisecond
	l := f.client(lock.WithTTL(ttl))
	reader := must(l.RWMutex(f.key("rw")).RLock(f.ctx))(t)
	writer := must(l.RWMutex(f.key("w")).Lock(f.ctx))(t)
	permits := must(l.Semaphore(f.key("s"), 3).Acquire(f.ctx, 3))(t)
	first := permits.ValidUntil()
	testkit.Eventually(t, callLimit, "renewals", func() bool {
		for _, h := range []lock.Hold{reader, writer, permits} {
			if h.Context().Err() != nil {
				t.Skip("the machine is too busy for a lease of 500ms")
			}
		}
		return permits.ValidUntil().Sub(first) > 2*ttl
	})
	for _, h := range []lock.Hold{reader, writer, permits} {
		f.unlock(h)
	}
	if left := f.rdb.Exists(f.ctx, f.key("rw"), f.key("w"), f.key("s")).Val(); left != 0 {
		t.Errorf("%d keys are left", left)
	}
}

func TestExpirablePermits(t *testing.T) {
	f := newFixture(t)
	a, b := f.client().ExpirableSemaphore(f.key("a"), 2), f.client().ExpirableSemaphore(f.key("a"), 2)
	first := must(a.Acquire(f.ctx, time.Minute))(t)
	second := must(a.TryAcquire(f.ctx, 3*time.Second))(t)
	if first.ID == second.ID {
		t.Error("two permits have one id")
	}
	wantErr(t, errOf(b.TryAcquire(f.ctx, time.Second)), lock.ErrNotAcquired, "a third of two")
	third := must(b.Acquire(f.ctx, time.Minute))(t) // when the second's time is over
	if time.Now().Before(second.ValidUntil) {
		t.Errorf("the third began %s before the second's end", time.Until(second.ValidUntil))
	}
	wantErr(t, a.Release(f.ctx, second.ID), lock.ErrNotHeld, "late release")
	until := must(b.Extend(f.ctx, first.ID, time.Hour))(t) // by another client
	if time.Until(until) < 50*time.Minute {
		t.Errorf("extended until %s", until)
	}
	wantErr(t, errOf(a.Extend(f.ctx, second.ID, time.Hour)), lock.ErrNotHeld, "late extension")
	for _, id := range []string{first.ID, third.ID} {
		noErr(t, b.Release(f.ctx, id), "release")
		wantErr(t, b.Release(f.ctx, id), lock.ErrNotHeld, "release twice")
	}
	for _, id := range []string{"", "x y", "p 1", "nobody.1"} {
		wantErr(t, b.Release(f.ctx, id), lock.ErrNotHeld, "%q", id)
	}
}

func TestALatchOpensWhenAllHaveArrived(t *testing.T) {
	f := newFixture(t)
	const parties, waiters = 5, 8
	l := f.client().CountDownLatch(f.key("a"), parties, time.Minute)
	if n := must(l.Missing(f.ctx))(t); n != parties || f.rdb.Exists(f.ctx, f.key("a")).Val() != 0 {
		t.Errorf("%d are missing of an unused latch, or Missing created it", n)
	}
	done := make(chan error, waiters)
	for range waiters {
		other := f.client().CountDownLatch(f.key("a"), parties, time.Minute)
		go func() { done <- other.Wait(f.ctx) }()
	}
	for i := range parties {
		if len(done) > 0 {
			t.Fatalf("open with %d parties", i)
		}
		for range 2 { // the second one does not count
			if n := must(l.CountDown(f.ctx, fmt.Sprint("party ", i)))(t); n != int64(parties-i-1) {
				t.Errorf("%d are missing after %d arrived", n, i+1)
			}
		}
	}
	for range waiters {
		noErr(t, <-done)
	}
	noErr(t, l.Wait(f.ctx), "an open latch")
	if n := must(l.CountDown(f.ctx, "one too many"))(t); n != 0 {
		t.Errorf("%d are missing of an open latch", n)
	}
	if left := f.ttl(f.key("a")); left <= 0 {
		t.Errorf("the latch lives for %s", left)
	}
	different := f.client().CountDownLatch(f.key("a"), parties+1, time.Minute)
	wantErr(t, errOf(different.CountDown(f.ctx, "x")), lock.ErrCountDiffers, "another count")
	shut := f.client().CountDownLatch(f.key("b"), 1, time.Minute)
	ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
	defer cancel()
	if err := shut.Wait(ctx); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that ended: %v", err)
	}
	if n := f.rdb.Exists(f.ctx, f.key("b")+":queue").Val(); n != 0 {
		t.Error("a waiter that gave up is still queued")
	}
}

func TestAllLocksOrNone(t *testing.T) {
	f := newFixture(t)
	l := f.client()
	a, b, rw, s := l.Mutex(f.key("a")), l.FairMutex(f.key("b")), l.RWMutex(f.key("rw")), l.Semaphore(f.key("s"), 1)
	h := must(lock.All(s, rw, b, a).Lock(f.ctx))(t)
	for i, one := range []lock.Locker{a, b, rw, s} {
		wantErr(t, errOf(one.TryLock(f.ctx)), lock.ErrNotAcquired, "lock %d", i)
	}
	if left := time.Until(h.ValidUntil()); left <= 0 || h.Context().Err() != nil {
		t.Errorf("valid for %s, %v", left, h.Context().Err())
	}
	f.unlock(h)
	wantErr(t, h.Unlock(f.ctx), lock.ErrNotHeld, "unlock twice")
	busy := must(rw.Lock(f.ctx))(t)
	err := errOf(lock.All(a, b, rw, s).Lock(f.ctx, lock.Wait(50*time.Millisecond)))
	wantErr(t, err, lock.ErrNotAcquired, "one is busy")
	for _, one := range []lock.Locker{a, b, s} {
		f.unlock(must(one.TryLock(f.ctx))(t))
	}
	f.unlock(busy)
	wantErr(t, errOf(lock.All(a, a).Lock(f.ctx)), lock.ErrBadKey, "one twice")
	wantErr(t, errOf(lock.All().Lock(f.ctx)), lock.ErrBadCount, "none")
}

// All is lost when one of its locks is.
func TestAllIsLostWithOne(t *testing.T) {
	f := newFixture(t)
	l := f.client(lock.WithTTL(2 * time.Second))
	h := must(lock.All(l.Mutex(f.key("a")), l.Mutex(f.key("b"))).Lock(f.ctx))(t)
	work := h.Context()
	f.rdb.Del(f.ctx, f.key("b"))
	<-work.Done()
	wantErr(t, context.Cause(work), lock.ErrLeaseLost, "cause")
	wantErr(t, h.Unlock(f.ctx), lock.ErrNotHeld, "unlock")
	f.unlock(must(l.Mutex(f.key("a")).TryLock(f.ctx))(t))
}

// Callers that list the same locks in every order never deadlock.
func TestAllCannotDeadlock(t *testing.T) {
	f := newFixture(t)
	keys := []string{"a", "b", "c", "d"}
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		l := f.client()
		var locks []lock.Locker
		for _, k := range rotate(keys, i) {
			locks = append(locks, l.Mutex(f.key(k)))
		}
		if i%2 == 1 {
			slices.Reverse(locks)
		}
		wg.Go(func() {
			for range 10 {
				err := lock.Do(f.ctx, lock.All(locks...), func(context.Context, int64) error {
					if inside.Add(1) != 1 {
						t.Error("two inside")
					}
					inside.Add(-1)
					return nil
				})
				noErr(t, err)
			}
		})
	}
	wg.Wait()
}
