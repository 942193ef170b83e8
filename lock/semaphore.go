package lock

import (
	"context"
	"math"

	scripts "sluice/lua/lock"
)

const (
	// MaxPermits bounds the permits of a semaphore.
	MaxPermits = math.MaxInt32
	// MaxAcquire bounds the permits that one call takes.
	MaxAcquire = scripts.MaxAmount
)

// Semaphore lets at most n permits be held at once. A permit is leased, by the clock of the server, and renewed while
// it is held: those of a process that dies become free again. Waiters are served in order, those that want many permits
// too.
//
// n is not stored: every caller passes it, and all should pass the same. While they differ, no caller gets a permit
// beyond its own n.
type Semaphore struct {
	shared sharedLock
	n      int64
}

// Semaphore returns the semaphore of a key with n permits, 1 to MaxPermits.
func (c *Client) Semaphore(key string, n int64) Semaphore { return Semaphore{sharedLock{c, key}, n} }

var _ Locker = Semaphore{}

// Acquire waits until it has count permits, 1 to MaxAcquire and at most n, all in one Hold. Options as for Lock.
func (s Semaphore) Acquire(ctx context.Context, count int64, options ...CallOption) (Hold, error) {
	return s.take(ctx, count, true, options)
}

// TryAcquire takes the permits if they are free and there is no waiter.
func (s Semaphore) TryAcquire(ctx context.Context, count int64, options ...CallOption) (Hold, error) {
	return s.take(ctx, count, false, options)
}

// Lock waits for one permit; see Locker.
func (s Semaphore) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return s.take(ctx, 1, true, options)
}

// TryLock takes one permit; see Locker.
func (s Semaphore) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return s.take(ctx, 1, false, options)
}

func (s Semaphore) take(ctx context.Context, count int64, blocking bool, options []CallOption) (Hold, error) {
	if err := checkPermits(count, s.n); err != nil {
		return nil, err
	}
	return s.shared.take(ctx, scripts.Share{Kind: scripts.Permit, Amount: count, Limit: s.n}, blocking, options)
}

func checkPermits(count, n int64) error {
	if err := checkCount("permits of a semaphore", n, MaxPermits); err != nil {
		return err
	}
	return checkCount("permits at once", count, min(n, MaxAcquire))
}
