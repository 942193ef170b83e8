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
	a, b := must[lock.Hold](t)(m.RLock(f.ctx)), must[lock.Hold](t)(m.RLock(f.ctx))
	if _, err := m.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a writer among readers: %v", err)
	}
	if a.Fence() != 0 {
		t.Errorf("a reader has the fence %d", a.Fence())
	}
	f.unlock(a)
	f.unlock(b)
	if err := a.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("unlock twice: %v", err)
	}
	w := must[lock.Hold](t)(m.TryLock(f.ctx))
	if _, err := m.TryRLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader beside a writer: %v", err)
	}
	if _, err := m.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a second writer: %v", err)
	}
	f.unlock(w)
	next := must[lock.Hold](t)(m.Lock(f.ctx))
	if next.Fence() <= w.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), w.Fence())
	}
	f.unlock(next)
}

// A writer who waits is next, however many readers come after him; and they are next after him, all at once.
func TestWritersAreNotStarved(t *testing.T) {
	f := newFixture(t)
	key := f.key("a")
	m := f.client().RWMutex(key)
	reader := must[lock.Hold](t)(m.RLock(f.ctx))
	wrote := make(chan lock.Hold, 1)
	go func() { h, _ := m.Lock(f.ctx); wrote <- h }()
	testkit.Eventually(t, callLimit, "the writer", func() bool { return f.rdb.ZCard(f.ctx, key+":queue").Val() == 1 })
	if _, err := m.TryRLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader overtook the writer who waits: %v", err)
	}
	const many = 10
	reads := make(chan lock.Hold, many)
	for range many {
		go func() { h, _ := m.RLock(f.ctx); reads <- h }()
	}
	testkit.Eventually(t, callLimit, "the readers", func() bool { return f.rdb.ZCard(f.ctx, key+":queue").Val() == 1+many })
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
	two, one := must[lock.Hold](t)(s.Acquire(f.ctx, 2)), must[lock.Hold](t)(s.Lock(f.ctx))
	if _, err := s.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a fourth of three: %v", err)
	}
	f.unlock(two)
	if _, err := s.TryAcquire(f.ctx, 3); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("three of two: %v", err)
	}
	f.unlock(must[lock.Hold](t)(s.TryAcquire(f.ctx, 2)))
	f.unlock(one)
	f.unlock(must[lock.Hold](t)(s.TryAcquire(f.ctx, 3)))
}

// However many want permits, some of them for longer than they live, never more than n are held at once.
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
					time.Sleep(time.Millisecond) // so that they meet
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
		must[lock.Hold](t)(dead.Semaphore(f.key("a"), 2).Lock(f.ctx))
	}
	if err := dead.Close(); err != nil { // nobody renews, nobody unlocks
		t.Fatal(err)
	}
	f.unlock(must[lock.Hold](t)(s.Acquire(f.ctx, 2)))
}

func TestSharesAreRenewed(t *testing.T) {
	f := newFixture(t)
	const ttl = 500 * time.Millisecond
	l := f.client(lock.WithTTL(ttl))
	reader := must[lock.Hold](t)(l.RWMutex(f.key("rw")).RLock(f.ctx))
	writer := must[lock.Hold](t)(l.RWMutex(f.key("w")).Lock(f.ctx))
	permits := must[lock.Hold](t)(l.Semaphore(f.key("s"), 3).Acquire(f.ctx, 3))
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
	first := must[lock.Permit](t)(a.Acquire(f.ctx, time.Minute))
	second := must[lock.Permit](t)(a.TryAcquire(f.ctx, 3*time.Second))
	if first.ID == second.ID {
		t.Error("two permits have one id")
	}
	if _, err := b.TryAcquire(f.ctx, time.Second); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a third of two: %v", err)
	}
	third := must[lock.Permit](t)(b.Acquire(f.ctx, time.Minute)) // when the second's time is over
	if time.Now().Before(second.ValidUntil) {
		t.Errorf("the third began %s before the second's end", time.Until(second.ValidUntil))
	}
	if err := a.Release(f.ctx, second.ID); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("late release: %v", err)
	}
	if until := must[time.Time](t)(b.Extend(f.ctx, first.ID, time.Hour)); time.Until(until) < 50*time.Minute { // from elsewhere
		t.Errorf("extended until %s", until)
	}
	if _, err := a.Extend(f.ctx, second.ID, time.Hour); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("late extension: %v", err)
	}
	for _, id := range []string{first.ID, third.ID} {
		if err := b.Release(f.ctx, id); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := b.Release(f.ctx, id); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("release twice: %v", err)
		}
	}
	for _, id := range []string{"", "x y", "p 1", "nobody.1"} {
		if err := b.Release(f.ctx, id); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestALatchOpensWhenAllHaveArrived(t *testing.T) {
	f := newFixture(t)
	const parties, waiters = 5, 8
	l := f.client().CountDownLatch(f.key("a"), parties, time.Minute)
	if n := must[int64](t)(l.Missing(f.ctx)); n != parties || f.rdb.Exists(f.ctx, f.key("a")).Val() != 0 {
		t.Errorf("%d are missing of a latch that nobody used, or it was made by looking", n)
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
		for range 2 { // the second counts nothing
			if n := must[int64](t)(l.CountDown(f.ctx, fmt.Sprint("party ", i))); n != int64(parties-i-1) {
				t.Errorf("%d are missing after %d arrived", n, i+1)
			}
		}
	}
	for range waiters {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := l.Wait(f.ctx); err != nil {
		t.Errorf("an open latch: %v", err)
	}
	if n := must[int64](t)(l.CountDown(f.ctx, "one too many")); n != 0 {
		t.Errorf("%d are missing of an open latch", n)
	}
	if left := f.ttl(f.key("a")); left <= 0 {
		t.Errorf("the latch lives for %s", left)
	}
	if _, err := f.client().CountDownLatch(f.key("a"), parties+1, time.Minute).CountDown(f.ctx, "x"); !errors.Is(err, lock.ErrCountDiffers) {
		t.Errorf("another count: %v", err)
	}
	shut := f.client().CountDownLatch(f.key("b"), 1, time.Minute)
	ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
	defer cancel()
	if err := shut.Wait(ctx); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that ended: %v", err)
	}
	if n := f.rdb.Exists(f.ctx, f.key("b")+":queue").Val(); n != 0 {
		t.Error("who gave up still waits")
	}
}

func TestAllLocksOrNone(t *testing.T) {
	f := newFixture(t)
	l := f.client()
	a, b, rw, s := l.Mutex(f.key("a")), l.FairMutex(f.key("b")), l.RWMutex(f.key("rw")), l.Semaphore(f.key("s"), 1)
	h := must[lock.Hold](t)(lock.All(s, rw, b, a).Lock(f.ctx))
	for i, one := range []lock.Locker{a, b, rw, s} {
		if _, err := one.TryLock(f.ctx); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("lock %d: %v", i, err)
		}
	}
	if left := time.Until(h.ValidUntil()); left <= 0 || h.Context().Err() != nil {
		t.Errorf("valid for %s, %v", left, h.Context().Err())
	}
	f.unlock(h)
	if err := h.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("unlock twice: %v", err)
	}
	busy := must[lock.Hold](t)(rw.Lock(f.ctx))
	if _, err := lock.All(a, b, rw, s).Lock(f.ctx, lock.Wait(50*time.Millisecond)); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("one is busy: %v", err)
	}
	for _, one := range []lock.Locker{a, b, s} {
		f.unlock(must[lock.Hold](t)(one.TryLock(f.ctx)))
	}
	f.unlock(busy)
	if _, err := lock.All(a, a).Lock(f.ctx); !errors.Is(err, lock.ErrBadKey) {
		t.Errorf("one twice: %v", err)
	}
	if _, err := lock.All().Lock(f.ctx); !errors.Is(err, lock.ErrBadCount) {
		t.Errorf("none: %v", err)
	}
}

// All of them is lost when one is.
func TestAllIsLostWithOne(t *testing.T) {
	f := newFixture(t)
	l := f.client(lock.WithTTL(2 * time.Second))
	h := must[lock.Hold](t)(lock.All(l.Mutex(f.key("a")), l.Mutex(f.key("b"))).Lock(f.ctx))
	work := h.Context()
	f.rdb.Del(f.ctx, f.key("b"))
	<-work.Done()
	if err := context.Cause(work); !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("cause: %v", err)
	}
	if err := h.Unlock(f.ctx); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("unlock: %v", err)
	}
	f.unlock(must[lock.Hold](t)(l.Mutex(f.key("a")).TryLock(f.ctx)))
}

// Callers that name the same locks in every order never wait for each other for ever.
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
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
