package lock

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Owner identifies a holder across several entries: the same Owner enters a Mutex or FairMutex that it holds once more,
// without waiting for itself, and frees it with the last Unlock. The zero Owner is none.
type Owner struct{ id string }

// NewOwner returns an Owner that differs from every other. Go has no thread ids, so pass it to the code that shares the
// lock.
func NewOwner() Owner { return Owner{uuid.NewString()} }

// CallOption changes one call of Lock or TryLock.
type CallOption func(*lockOptions)

type lockOptions struct {
	owner Owner
	wait  time.Duration // 0: as long as the context lasts
	lease time.Duration // 0: the client's TTL, renewed

	strict bool // for a quorum: a server that does not reply in time is skipped
}

// As enters the lock as an Owner. Only Mutex and FairMutex know owners; for the others each call is a holder of its
// own.
func As(owner Owner) CallOption { return func(o *lockOptions) { o.owner = owner } }

// Wait bounds the wait of Lock, besides its context; at least a millisecond. The context bounds the work too.
func Wait(d time.Duration) CallOption { return func(o *lockOptions) { o.wait = d } }

// Lease sets how long the lock is held, MinTTL to MaxTTL, without renewal: the work ends with it, or extends it itself.
func Lease(d time.Duration) CallOption { return func(o *lockOptions) { o.lease = d } }

func (c *Client) lockOptions(options []CallOption) (o lockOptions, ttl time.Duration, err error) {
	for _, option := range options {
		option(&o)
	}
	ttl = c.ttl
	if o.lease != 0 {
		ttl = o.lease
	}
	if err := checkTTL("lease", ttl); err != nil {
		return o, 0, err
	}
	if o.wait < 0 {
		return o, 0, checkTTL("wait", o.wait)
	}
	return o, ttl, nil
}

// Locker is anything that can be held: a mutex, one side of an RWMutex, a permit, several locks, a quorum.
type Locker interface {
	// Lock waits until it has the lock, or returns ErrNotAcquired when ctx or the wait ends. An error of Redis ends the
	// wait too, and ErrLeaseLost means that Redis gave the lock but its reply came after the lease. The Hold's context
	// is derived from ctx, and renewal ends with ctx: use Wait to bound the wait only.
	Lock(ctx context.Context, options ...CallOption) (Hold, error)
	// TryLock does not wait: ErrNotAcquired means that others hold the lock.
	TryLock(ctx context.Context, options ...CallOption) (Hold, error)
}

// Hold is a lock that is held until it is unlocked or lost. It is safe for concurrent use.
type Hold interface {
	// Context is for the work. It ends with the context given to Lock, with Unlock, and with the cause ErrLeaseLost
	// when the lease is over. Its Err reports the end of the lease exactly, even where a busy machine is late to close
	// Done.
	Context() context.Context
	// Fence rises with every holder of the lock and is the same for all entries of one owner. A store that keeps the
	// highest fence it saw can refuse a late holder. It is 0 where there is none: readers, permits, quorums.
	Fence() int64
	// ValidUntil is when the lease ends unless it is renewed, by this machine's monotonic clock.
	ValidUntil() time.Time
	// Extend makes the lease last for d from now on, if it would end before; MinTTL to MaxTTL. ErrNotHeld: it is lost.
	Extend(ctx context.Context, d time.Duration) error
	// Unlock frees the lock, although ctx may have ended, within two seconds; where Redis can't be reached, the lease
	// simply ends. ErrNotHeld: the lease was over, or the lock was unlocked before.
	Unlock(ctx context.Context) error
}

// Do runs fn while the lock is held and returns its error, or that of Lock, Unlock, or ErrLeaseLost. ctx bounds both.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context, fence int64) error, options ...CallOption) error {
	h, err := l.Lock(ctx, options...)
	if err != nil {
		return err
	}
	return do(ctx, h, fn)
}
