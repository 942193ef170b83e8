package lock

import (
	"context"

	scripts "sluice/lua/lock"
)

// RWMutex is held by many readers or by one writer. All who wait stand in one queue and nobody overtakes, so a writer is
// not starved by readers that keep coming, nor they by writers. It can't be entered again: a reader that asks to write waits for
// itself. Each holder has a lease of its own, so one that dies holds up others for its lease only.
//
// A writer's Hold has a fence; a reader's has none, since it writes nothing. One round trip to take and to free, a wait costs
// one more.
type RWMutex struct{ shared sharedLock }

// RWMutex returns the read-write lock of a key, of 1 to MaxKeyBytes bytes.
func (c *Client) RWMutex(key string) RWMutex { return RWMutex{sharedLock{c, key}} }

var _ Locker = RWMutex{}

// Lock waits until it may write; see Locker.
func (m RWMutex) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, writing, true, options)
}

// TryLock may write if nobody holds or waits; see Locker.
func (m RWMutex) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, writing, false, options)
}

// RLock waits until it may read: until no writer holds, and none who came before waits.
func (m RWMutex) RLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, reading, true, options)
}

// TryRLock may read if no writer holds and nobody waits.
func (m RWMutex) TryRLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.shared.take(ctx, reading, false, options)
}

// RLocker is the readers' side, for Do and All.
func (m RWMutex) RLocker() Locker { return readers{m} }

var reading, writing = scripts.Share{Kind: scripts.Reader, Amount: 1}, scripts.Share{Kind: scripts.Writer, Amount: 1}

type readers struct{ RWMutex }

func (r readers) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return r.RLock(ctx, options...)
}

func (r readers) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return r.TryRLock(ctx, options...)
}
