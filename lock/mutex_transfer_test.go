package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lock"
)

func TestLockIsHandedOverInOrder(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		const waiters = 60
		first := must(m.Lock(f.ctx))(t)
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
			f.awaitQueue(queue, i+1)
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

// A waiter that died silently (its connection is gone) is skipped at once.
func TestTheDeadArePassedOver(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		first := must(m.Lock(f.ctx))(t)
		queue := f.queueOf(m, name)
		for i := range 50 {
			f.rdb.ZAdd(f.ctx, queue, z(float64(i), fmt.Sprintf("dead%d dead%d nobody", i, i)))
		}
		done := make(chan error, 1)
		go func() { done <- lockAndUnlock(f.ctx, m) }()
		f.awaitQueue(queue, 51)
		f.unlock(first)
		noErr(t, <-done, "%s", name)
	}
}

// A waiter that got the lock and never claims it (its machine is gone, its connection seems alive) costs its claim TTL.
func TestOneWhoNeverClaimsCostsItsClaim(t *testing.T) {
	f := newFixture(t)
	for name, m := range f.mutexes(f.client(), "a") {
		sub := f.rdb.Subscribe(f.ctx, "deaf-"+name)
		must(sub.Receive(f.ctx))(t)
		first := must(m.Lock(f.ctx))(t)
		f.rdb.ZAdd(f.ctx, f.queueOf(m, name), z(1, "deaf deaf deaf-"+name))
		done := make(chan error, 1)
		go func() { _, err := m.Lock(f.ctx); done <- err }()
		f.awaitQueue(f.queueOf(m, name), 2)
		f.unlock(first)
		noErr(t, <-done, "%s", name)
		noErr(t, sub.Close())
	}
}

// A lock that is transferred soon after we queued is ours without a further call: its fence is in the message. The
// renewal claims it, which extends it from the second that it is kept for to the whole lease.
func TestAHandOverNeedsNoClaim(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no")
	f := &fixture{T: t, ctx: t.Context(), rdb: testkit.Client(t, server.URL()), prefix: "own"}
	l, key := f.client(), f.key("a")
	for range 10 { // a machine that stalls for half a second makes the waiter poll after all
		first := must(l.Mutex(key).Lock(f.ctx))(t)
		got := f.later(l.Mutex(key).Lock)
		f.awaitQueue(key+":queue", 1)
		before := f.commands()
		f.unlock(first)
		h := <-got
		if h == nil {
			return
		}
		left := f.ttl(key)
		sent := f.commands() - before // read last, so that an earlier claim is counted
		until := time.Until(h.ValidUntil())
		if h.Fence() <= first.Fence() {
			t.Fatalf("fence %d after %d", h.Fence(), first.Fence())
		}
		if sent > 1 {
			f.unlock(h)
			continue
		}
		if until > time.Second || left > time.Second {
			t.Errorf("not claimed, but valid for %s and kept for %s", until, left)
		}
		testkit.Eventually(t, callLimit, "renewal", func() bool { return f.ttl(key) > time.Second })
		noErr(t, h.Context().Err())
		f.unlock(h)
		return
	}
	t.Error("each of ten transfers cost more than the call that unlocks")
}

// A message that comes late, or from elsewhere, is ignored once the lock that it names may have been lost again.
func TestALateMessageIsNotBelieved(t *testing.T) {
	f := newFixture(t)
	l, key := f.client(), f.key("a")
	first := must(l.Mutex(key).Lock(f.ctx))(t)
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(f.ctx)
	go func() { _, err := l.Mutex(key).Lock(ctx); got <- err }()
	var waiter []string
	testkit.Eventually(t, callLimit, "the waiter", func() bool {
		waiter = strings.Fields(strings.Join(f.rdb.ZRange(f.ctx, key+":queue", 0, -1).Val(), ""))
		return len(waiter) == 3
	})
	time.Sleep(600 * time.Millisecond) // not a wait for something: the message has to be this old
	for range 3 {
		if n := f.rdb.Publish(f.ctx, waiter[2], waiter[1]+" 9000000000000000").Val(); n != 1 {
			t.Fatalf("%d subscribers got it", n)
		}
		select {
		case err := <-got:
			t.Fatalf("it was believed: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	noErr(t, first.Context().Err(), "the holder")
	f.unlock(first)
	noErr(t, <-got)
	cancel()
}

// A lock that is transferred after a wait longer than the client's TTL is as good as any.
func TestAHandOverAfterALongerWaitThanTheTTL(t *testing.T) {
	f := newFixture(t)
	const ttl, tries = 400 * time.Millisecond, 5
	holder, waiter := f.client(), f.client(lock.WithTTL(ttl))
	lost := 0
	for try := range tries {
		key := f.key(fmt.Sprint(try))
		h := must(holder.Mutex(key).Lock(f.ctx))(t)
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
