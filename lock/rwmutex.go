package lock

import (
	"context"

	scripts "sluice/lua/lock"
)

// RWMutex is held by many readers or by one writer. All waiters are in one queue and none is overtaken, so readers that
// keep coming can't starve a writer, nor writers a reader. It is not re-entrant: a reader that asks to write waits for
// itself. Each holder has a lease of its own, so one that dies holds up others for its lease only.
//
// A writer's Hold has a fence; a reader's has none, since it writes nothing. Taking and freeing cost one round trip
// each, a wait one more.
type RWMutex struct{ shared sharedLock }

// RWMutex returns the read-write lock of a key, of 1 to MaxKeyBytes bytes.
func (c *Client) RWMutex(key string) RWMutex { return RWMutex{sharedLock{c, key}} }

var _ Locker = RWMutex{}

// Lock waits until it may write; see Locker.
func (m RWMutex) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, writing, true, options)
}

// TryLock takes the writer's side if there is no holder and no waiter; see Locker.
func (m RWMutex) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, writing, false, options)
}

// RLock waits until it may read: until there is no writer and no earlier waiter.
func (m RWMutex) RLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, reading, true, options)
}

// TryRLock takes a reader's share if there is no writer and no waiter.
func (m RWMutex) TryRLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, reading, false, options)
}

// RLocker returns the readers' side as a Locker, for Do and All.
func (m RWMutex) RLocker() Locker { return readers{m} }

var reading, writing = scripts.Share{Kind: scripts.Reader, Amount: 1}, scripts.Share{Kind: scripts.Writer, Amount: 1}

type readers struct{ RWMutex }

func (r readers) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return r.RLock(ctx, options...)
}

func (r readers) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return r.TryRLock(ctx, options...)
}
