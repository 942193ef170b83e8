package lock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	scripts "sluice/lua/lock"
)

// Mutex is a lock with one holder. Taking a free one costs one round trip, freeing it another; a wait costs one more,
// when the holder transfers the lock. Waiters get it in the order in which they came, but a newcomer may find it free
// when a lease ran out; FairMutex prevents that, at the cost of a look at the queue.
//
// The same Owner (see As) may take it again while it holds it. Each entry is a Hold of its own, all have the same
// fence, and the last Unlock frees the lock.
type Mutex struct {
	client *Client
	key    string
	fair   bool
}

// Mutex returns the lock of a key, of 1 to MaxKeyBytes bytes. Two with one key, on any client, are one lock.
func (c *Client) Mutex(key string) Mutex { return Mutex{client: c, key: key} }

// FairMutex returns a Mutex that no newcomer gets before the waiters, not even when a lease ran out. TryLock fails
// while there are waiters. Mutex and FairMutex must not be mixed on one key.
func (c *Client) FairMutex(key string) Mutex { return Mutex{client: c, key: key, fair: true} }

var _ Locker = Mutex{}

// Lock waits until it has the lock; see Locker.
func (m Mutex) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, true, options)
}

// TryLock takes the lock if it is free, or held by the same Owner; see Locker.
func (m Mutex) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return m.take(ctx, false, options)
}

func (m Mutex) take(ctx context.Context, blocking bool, options []CallOption) (Hold, error) {
	if err := checkKey(m.key); err != nil {
		return nil, err
	}
	o, ttl, err := m.client.lockOptions(options)
	if err != nil {
		return nil, err
	}
	l, err := m.leaseFor(ctx, ctx, blocking, o, ttl)
	if err != nil {
		return nil, err // not the nil of a *lease
	}
	return l, nil
}

// leaseFor waits as long as ctx lasts, for work that may last longer.
func (m Mutex) leaseFor(ctx, work context.Context, blocking bool, o lockOptions, ttl time.Duration) (*lease, error) {
	c, id := m.client, m.client.newID()
	keys := scripts.Keys{Lock: m.key, Queue: siblingKey(m.key, "queue")}
	r := &mutexRecord{c.scripter(o.strict), keys, c.caller(o.owner, id), ttl, m.fair}
	q := acquisition{
		client: c, id: id, timeout: o.wait, blocking: blocking, poll: ttl / renewPart, strict: o.strict, renews: o.lease == 0,
		requester: r,
	}
	won, err := q.run(ctx)
	if err != nil {
		return nil, err
	}
	return c.newLease(work, r, won, ttl, o.lease == 0)
}

// mutexRecord is one entry of an owner.
type mutexRecord struct {
	rdb  redis.Scripter
	keys scripts.Keys
	who  scripts.Caller
	ttl  time.Duration
	fair bool
}

func (r *mutexRecord) try(ctx context.Context, channel string, again bool) (scripts.AcquireReply, error) {
	who := r.who
	who.Channel, who.MayBeQueued = channel, again
	return scripts.Acquire(ctx, r.rdb, r.keys, who, r.ttl, r.fair)
}

func (r *mutexRecord) renewals() []scripts.Renewal {
	return []scripts.Renewal{{Key: r.keys.Lock, Owner: r.who.Owner, Hold: r.who.Hold}}
}

func (r *mutexRecord) free(ctx context.Context, channel string) (held bool, err error) {
	who := r.who
	who.Channel = channel
	return scripts.Release(ctx, r.rdb, r.keys, who)
}
