package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/lock"
	scripts "sluice/lua/lock"
)

func nothing(context.Context) error { return nil }

func TestRunOnceRunsOncePerTick(t *testing.T) {
	f := newFixture(t)
	a, b := lock.New(f.rdb), lock.New(testkit.Redis(t))
	key := f.key("job")
	if ran, err := a.RunOnce(f.ctx, key, time.Minute, nothing); !ran || err != nil {
		t.Fatalf("first: got %t, %v", ran, err)
	}
	for _, l := range []*lock.Client{a, b} {
		ran, err := l.RunOnce(f.ctx, key, time.Minute, func(context.Context) error { t.Error("ran again"); return nil })
		if ran || err != nil {
			t.Errorf("again in the same tick: got %t, %v", ran, err)
		}
	}
	if left := f.ttl(key); left < 50*time.Second || left > time.Minute {
		t.Errorf("the tick is taken for %s, want the rest of a minute", left)
	}
}

// Twenty nodes that ask all the time for a job that uses up its lease: none begins before the previous lease is over,
// and there are no more runs than ticks. (Deadlines are compared, since on a busy machine the timer that ends a context
// may fire late.)
func TestRunOnceAcrossManyNodes(t *testing.T) {
	f := newFixture(t)
	const nodes, ticks, tick = 20, 10, 200 * time.Millisecond
	var (
		mu       sync.Mutex // protects runs and leaseEnd
		runs     int64
		leaseEnd time.Time
		wg       sync.WaitGroup
	)
	job := func(ctx context.Context) error {
		mu.Lock()
		if early := time.Until(leaseEnd); early > 0 {
			t.Errorf("a run began %s before the lease of the one before it was over", early)
		}
		leaseEnd, _ = ctx.Deadline()
		runs++
		mu.Unlock()
		<-ctx.Done()
		return nil
	}
	begin := time.Now()
	for range nodes {
		l := lock.New(f.rdb)
		wg.Go(func() {
			for time.Since(begin) < ticks*tick {
				if _, err := l.RunOnce(f.ctx, f.key("job"), tick, job); err != nil && !errors.Is(err, lock.ErrLeaseLost) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if most := int64((took+tick/10)/tick) + 1; runs > most || runs < 2 {
		t.Errorf("%d runs in %s, want 2 to %d", runs, took, most)
	}
}

// One node whose timer fires slightly early must not miss every second tick; what it took early is added to the next
// tick, so the pace stays.
func TestRunOnceTakesATickALittleEarly(t *testing.T) {
	f := newFixture(t)
	key, tick, early := f.key("job"), 100*time.Second, 10*time.Second
	claim := func(token string) bool {
		t.Helper()
		run := must(scripts.RunOnce(f.ctx, f.rdb, key, token, tick, early))(t)
		return run
	}
	if !claim("first") {
		t.Fatal("the first claim is refused")
	}
	f.rdb.PExpire(f.ctx, key, early+time.Second)
	if claim("too early") {
		t.Error("claimed 11 s before it is due, 10 are allowed")
	}
	f.rdb.PExpire(f.ctx, key, early)
	if !claim("second") {
		t.Error("not claimed 10 s before it is due")
	}
	if left := f.ttl(key); left < tick+early-5*time.Second || left > tick+early {
		t.Errorf("due in %s, want a tick and the 10 s it was early", left)
	}
	was := f.ttl(key)
	if !claim("second") { // the retry of a lost reply
		t.Error("the retry is refused")
	}
	if left := f.ttl(key); left > was {
		t.Errorf("the retry moved the due time from %s to %s", was, left)
	}
	f.rdb.Persist(f.ctx, key) // we never leave such a key; it must not stop the job forever
	if !claim("third") {
		t.Error("a key that never expires stops the job")
	}
}

func TestRunOnceGivesAFailedTickUp(t *testing.T) {
	f := newFixture(t)
	l, key, failure := lock.New(f.rdb), f.key("job"), errors.New("the database is away")
	ran, err := l.RunOnce(f.ctx, key, time.Minute, func(context.Context) error { return failure })
	if !ran || !errors.Is(err, failure) {
		t.Errorf("got %t, %v, want true and the job's error", ran, err)
	}
	if ran, err := l.RunOnce(f.ctx, key, time.Minute, nothing); !ran || err != nil {
		t.Errorf("the next: got %t, %v, want it to run", ran, err)
	}
}

// A shutdown in the middle of a job gives the tick up for the other nodes, although the context is cancelled.
func TestRunOnceGivesACancelledTickUp(t *testing.T) {
	f := newFixture(t)
	l, key := lock.New(f.rdb), f.key("job")
	ctx, cancel := context.WithCancel(f.ctx)
	ran, err := l.RunOnce(ctx, key, time.Minute, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !ran || !errors.Is(err, context.Canceled) {
		t.Errorf("got %t, %v", ran, err)
	}
	if f.rdb.Exists(f.ctx, key).Val() != 0 {
		t.Error("the tick is still taken")
	}
}

// A run that failed after its lease must not give up the tick of the next run.
func TestRunOnceLeavesTheNextRunsTick(t *testing.T) {
	f := newFixture(t)
	l, key := lock.New(f.rdb), f.key("job")
	_, err := l.RunOnce(f.ctx, key, time.Minute, func(context.Context) error {
		f.rdb.Set(f.ctx, key, "the next run's token", time.Minute)
		return errors.New("too late")
	})
	if err == nil || f.rdb.Get(f.ctx, key).Val() != "the next run's token" {
		t.Errorf("got %v, and the key holds %q", err, f.rdb.Get(f.ctx, key).Val())
	}
}

// A job that kills its node must not kill all nodes within one tick.
func TestRunOnceKeepsTheTickOfAPanic(t *testing.T) {
	f := newFixture(t)
	l, key := lock.New(f.rdb), f.key("job")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = l.RunOnce(f.ctx, key, time.Minute, func(context.Context) error { panic("poison") })
	}()
	if ran, err := l.RunOnce(f.ctx, key, time.Minute, nothing); ran || err != nil {
		t.Errorf("the next: got %t, %v, want it to wait for the next tick", ran, err)
	}
}

// The job's time is up before the server would let another node begin, whatever the clocks read.
func TestRunOnceEndsTheLeaseBeforeAnotherCanBegin(t *testing.T) {
	f := newFixture(t)
	l, key := lock.New(f.rdb), f.key("job")
	for _, tick := range []time.Duration{lock.MinTTL, 40 * time.Millisecond, time.Second, time.Hour} {
		f.rdb.Del(f.ctx, key)
		ran, err := l.RunOnce(f.ctx, key, tick, func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left := f.ttl(key)
			// By now at the latest: a busy machine may be late to read the reply, never early.
			if free := time.Now().Add(left - tick/10); left > 0 && !deadline.Before(free) {
				t.Errorf("tick %s: the context ends %s after another node may begin", tick, deadline.Sub(free))
			}
			return nil
		})
		if !ran && !errors.Is(err, lock.ErrLeaseLost) { // lost: the machine is too busy for so short a tick
			t.Errorf("tick %s: got %t, %v", tick, ran, err)
		}
	}
}

func TestRunOnceTellsWhyTheContextEnded(t *testing.T) {
	f := newFixture(t)
	ran, err := lock.New(f.rdb).RunOnce(f.ctx, f.key("job"), time.Second, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !ran || !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("got %t, %v, want the cause ErrLeaseLost", ran, err)
	}
}

func TestRunOnceWithAKeyOfAnotherTypeRunsNothing(t *testing.T) {
	f := newFixture(t)
	key := f.key("job")
	f.rdb.RPush(f.ctx, key, "x")
	job := func(context.Context) error { t.Error("ran"); return nil }
	ran, err := lock.New(f.rdb).RunOnce(f.ctx, key, time.Minute, job)
	if ran || err == nil {
		t.Errorf("got %t, %v, want an error", ran, err)
	}
	if f.rdb.LLen(f.ctx, key).Val() != 1 {
		t.Error("the key was changed")
	}
}

// The server replies after the lease is over: the job must not begin, and the tick is free for others.
func TestRunOnceDoesNotBeginAfterItsLease(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	rdb := testkit.Client(t, server.URL()+"?read_timeout=1m") // the late reply is what is tested
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	l, tick := lock.New(rdb), time.Second
	check(t, errOf(l.RunOnce(ctx, "warm", time.Minute, nothing)))
	check(t, server.Pause())
	lease := time.AfterFunc(2*tick, func() {
		noErr(t, server.Resume())
	})
	defer lease.Stop()
	ran, err := l.RunOnce(ctx, "job", tick, func(context.Context) error { t.Error("ran"); return nil })
	if ran || !errors.Is(err, lock.ErrLeaseLost) {
		t.Errorf("got %t, %v, want ErrLeaseLost", ran, err)
	}
	if rdb.Exists(ctx, "job").Val() != 0 {
		t.Error("the tick is still taken")
	}
}
