package lock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	scripts "sluice/lua/lock"
)

// Mutex is a lock with one holder. It costs one round trip to take when it is free and one to free; a wait costs one more,
// when the holder hands it over. Those who wait get it in the order in which they came, but a newcomer may find it free when
// a lease ran out; FairMutex forbids that, for a look at the queue.
//
// The same Owner (see As) may take it again while it holds it. Each entry is a Hold of its own, the fence stays, and the
// last Unlock frees it.
type Mutex struct {
	client *Client
	key    string
	fair   bool
}

// Mutex returns the lock of a key, of 1 to MaxKeyBytes bytes. Two with one key, on any client, are one lock.
func (c *Client) Mutex(key string) Mutex { return Mutex{client: c, key: key} }

// FairMutex returns a Mutex that nobody gets before those who wait for it already, not even when a lease ran out. TryLock
// fails while somebody waits. Mutex and FairMutex must not be mixed on one key.
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

func (m Mutex) take(ctx context.Context, patient bool, options []CallOption) (Hold, error) {
	if err := checkKey(m.key); err != nil {
		return nil, err
	}
	o, ttl, err := m.client.lockOptions(options)
	if err != nil {
		return nil, err
	}
	l, err := m.leaseFor(ctx, ctx, patient, o, ttl)
	if err != nil {
		return nil, err // not the nil of a *lease
	}
	return l, nil
}

// leaseFor waits as long as ctx lasts, for work that may last longer.
func (m Mutex) leaseFor(ctx, work context.Context, patient bool, o lockOptions, ttl time.Duration) (*lease, error) {
	c, id := m.client, m.client.newID()
	g := &mutexRecord{c.scripter(o.strict), scripts.Keys{Lock: m.key, Queue: siblingKey(m.key, "queue")}, c.caller(o.owner, id), ttl, m.fair}
	q := acquisition{client: c, id: id, timeout: o.wait, blocking: patient, poll: ttl / renewPart, strict: o.strict, renews: o.lease == 0, requester: g}
	got, sent, handed, err := q.run(ctx)
	if err != nil {
		return nil, err
	}
	first := ttl // of the lease; the next ones are renewals
	if handed {
		first = transferTTL // whatever the TTL is: a shorter one may be over since we queued
	}
	return c.newLease(work, g, got.Fence, sent, first, ttl, o.lease == 0)
}

// mutexGrip is one entry of an owner.
type mutexRecord struct {
	rdb  redis.Scripter
	keys scripts.Keys
	who  scripts.Caller
	ttl  time.Duration
	fair bool
}

func (g *mutexRecord) try(ctx context.Context, channel string, again bool) (scripts.Waiting, error) {
	who := g.who
	who.Channel, who.Again = channel, again
	return scripts.Acquire(ctx, g.rdb, g.keys, who, g.ttl, g.fair)
}

func (g *mutexRecord) renewals() []scripts.Renewal {
	return []scripts.Renewal{{Key: g.keys.Lock, Owner: g.who.Owner, Hold: g.who.Hold}}
}

func (g *mutexRecord) free(ctx context.Context) (held bool, err error) {
	return scripts.Release(ctx, g.rdb, g.keys, g.who)
}

// leave gives up a wait. Its own failure is not told: the first error says more, and time does the same later.
func (g *mutexRecord) withdraw(ctx context.Context, channel string) {
	ctx = detached(ctx)
	who := g.who
	who.Channel = channel
	_, _ = scripts.Release(ctx, g.rdb, g.keys, who)
}
