package lock_test

import (
	"context"
	"testing"
	"time"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lock"
)

// wrongBy is how far a server's clock is set wrong for an instant: far more than any test waits.
const wrongBy = time.Hour

// clockFixture is a fixture on a server whose clock the test moves.
func clockFixture(t *testing.T) (*fixture, *localservers.Redis) {
	t.Helper()
	f := newFixture(t)
	server := testkit.RedisWithClock(t)
	f.rdb = testkit.Client(t, server.URL())
	return f, server
}

// jumps are clocks that are wrong while something is taken, and right again.
var jumps = map[string]struct{ during, after time.Duration }{
	"ahead and back": {wrongBy, 0},
	"set back":       {0, -wrongBy},
}

// A job whose tick was taken under a clock that is set back since runs again after about a tick.
func TestRunOnceAfterAJumpOfTheClock(t *testing.T) {
	for name, jump := range jumps {
		t.Run(name, func(t *testing.T) {
			f, server := clockFixture(t)
			l := f.client()
			const tick = 500 * time.Millisecond
			run := func() bool {
				ran, err := l.RunOnce(f.ctx, f.key("job"), tick, func(context.Context) error { return nil })
				noErr(t, err, "run once")
				return ran
			}
			noErr(t, server.SetClock(jump.during), "set the clock")
			if !run() {
				t.Fatal("the first tick was not free")
			}
			noErr(t, server.SetClock(jump.after), "set the clock")
			began := time.Now()
			if run() {
				t.Error("a tick that was taken ran again at once")
			}
			testkit.Eventually(t, callLimit/2, "the next tick", run)
			if took := time.Since(began); took < tick/2 {
				t.Errorf("the next tick came after %s, want no less than about %s", took, tick)
			}
		})
	}
}

// A batch of locks whose holder died is free about a lease after the jump, and a holder that lives keeps them until
// then.
func TestTryLockManyAfterAJumpOfTheClock(t *testing.T) {
	for name, jump := range jumps {
		t.Run(name, func(t *testing.T) {
			f, server := clockFixture(t)
			const lease = time.Second
			holder, other := f.client(lock.WithTTL(lease)), f.client(lock.WithTTL(lease/10))
			keys := f.keysOf("a", "b")
			noErr(t, server.SetClock(jump.during), "set the clock")
			batch, err := holder.TryLockMany(f.ctx, keys)
			noErr(t, err, "lock")
			noErr(t, server.SetClock(jump.after), "set the clock")
			testkit.Eventually(t, callLimit/2, "the locks to be free", func() bool {
				got, err := other.TryLockMany(f.ctx, keys, lock.AllOrNone)
				noErr(t, err, "lock")
				return got.Held[0]
			})
			if early := time.Until(batch.ValidUntil); early > 0 {
				t.Errorf("they were free %s before the end of their holder's lease", early)
			}
		})
	}
}
