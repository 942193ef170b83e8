package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	scripts "sluice/lua/lock"
)

const (
	// DefaultTTL is longer than a batch may take to persist (5 s) and shorter than the idle time after which another
	// worker claims its entries (15 s) and then finds the locks free.
	DefaultTTL = 10 * time.Second

	// MinTTL is the shortest lease of which the drift margin and a round trip leave anything.
	MinTTL = 10 * time.Millisecond

	// cleanupTimeout bounds what is sent after the caller's context may have ended, such as unlocking.
	cleanupTimeout = 2 * time.Second
)

// Client takes locks on one Redis. It is safe for concurrent use. It starts to renew with the first lock that is held,
// and to subscribe with the first wait; Close ends both. A client that only calls TryLockMany and RunOnce needs no
// Close.
type Client struct {
	rdb     redis.UniversalClient
	ttl     time.Duration
	id      string // prefix of every owner and hold of ours, and part of our channel's name
	channel string // for the messages that wake our waiters
	cluster bool
	retries bool          // the Redis client may send a call more than once; assumed of a cluster's
	last    atomic.Uint64 // number of the last id

	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup // renewals in flight, and the subscriber

	batcher    batcher // for taking and freeing single locks
	renewer    renewer
	subscriber subscriber
}

// Option changes a Client that New makes.
type Option func(*Client)

// WithTTL sets how long a lock lasts without renewal; MinTTL to MaxTTL, in whole milliseconds.
func WithTTL(ttl time.Duration) Option { return func(c *Client) { c.ttl = ttl } }

// New returns a Client whose locks last DefaultTTL unless WithTTL says otherwise. Any Redis client will do, including
// one that retries. A read timeout longer than the TTL makes renewal late, and without ContextTimeoutEnabled a dead
// network keeps a call for longer than its context or the two seconds of an Unlock.
func New(rdb redis.UniversalClient, options ...Option) *Client {
	var id [9]byte
	_, _ = rand.Read(id[:]) // documented never to fail
	c := &Client{rdb: rdb, ttl: DefaultTTL, id: hex.EncodeToString(id[:])}
	c.channel = "lock:" + c.id
	server, single := rdb.(*redis.Client)
	c.cluster = !single
	c.batcher.UniversalClient = rdb
	c.retries = !single || server.Options().MaxRetries > 0
	c.batcher.endsInTime = single && server.Options().ContextTimeoutEnabled
	c.closing, c.close = context.WithCancel(context.Background())
	for _, option := range options {
		option(c)
	}
	return c
}

// Close ends renewal and every wait (ErrClosed), and returns when nothing of the Client runs any more. It frees no
// lock: a held one is lost when its lease ends, and can be unlocked until then. The Redis client stays open. Close may
// be called twice.
func (c *Client) Close() error {
	c.close()
	c.renewer.stop()
	err := c.subscriber.close()
	c.running.Wait()
	return err
}

func (c *Client) closed() bool { return c.closing.Err() != nil }

// ready returns why a call can't be sent.
func (c *Client) ready(ctx context.Context) error {
	if c.closed() {
		return ErrClosed
	}
	return context.Cause(ctx)
}

// newID returns an id that no other call of any client ever gets.
func (c *Client) newID() string { return c.id + "." + strconv.FormatUint(c.last.Add(1), 36) }

// scripter returns what sends scripts: the batcher, unless the call must end at its exact deadline, or the server is a
// cluster, where a node that hangs would hold up calls to the others.
func (c *Client) scripter(strict bool) redis.Scripter {
	if strict || c.cluster {
		return c.rdb
	}
	return &c.batcher
}

// caller names one entry of an owner.
func (c *Client) caller(owner Owner, hold string) scripts.Caller {
	if owner.id == "" {
		owner.id = hold
	}
	return scripts.Caller{Owner: owner.id, Hold: hold, Cluster: c.cluster}
}

// newToken returns a name for one holder. It is compared whole, and random, so that no two calls share one.
func newToken() string { return uuid.NewString() }

// detached returns a context for what must be sent although the caller's context may have ended. It has no timer: the
// Redis client reads the deadline from it and sets it on the connection.
func detached(ctx context.Context) context.Context {
	return withDeadlineOnly(context.WithoutCancel(ctx), cleanupTimeout)
}

func withDeadlineOnly(ctx context.Context, d time.Duration) context.Context {
	return &deadlineContext{ctx, time.Now().Add(d)}
}

// deadlineContext is a context with a deadline but without a timer: Done is not closed at the deadline.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (b *deadlineContext) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *deadlineContext) Err() error {
	if time.Now().Before(b.deadline) {
		return b.Context.Err()
	}
	return context.DeadlineExceeded
}
