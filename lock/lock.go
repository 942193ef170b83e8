// Package lock holds locks in Redis for the order pipeline: a batch of per-order locks in one round trip, and jobs that
// many nodes schedule and one runs.
//
// A lock is a lease. Its holder may be paused, its server may fail over and forget it: then two believe they hold it, and
// no lease can prevent that. So nothing here may rest on a lock alone. The pipeline's writes are idempotent; its locks
// save double work, they do not make it right.
package lock

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// DefaultTTL is longer than a batch may take to persist (5 s) and shorter than the idle time after which its entries
	// are claimed by another worker (15 s), who then finds the locks free.
	DefaultTTL = 10 * time.Second

	// MinTTL is the shortest lease of which the drift margin and a round trip leave anything.
	MinTTL = 10 * time.Millisecond

	// cleanupTimeout bounds what is sent after the caller's context may have ended: unlocking.
	cleanupTimeout = 2 * time.Second
)

// Client takes locks on one Redis. It is safe for concurrent use, owns no goroutine and needs no closing.
type Client struct {
	rdb redis.UniversalClient
	ttl time.Duration
}

// Option changes a Client that New makes.
type Option func(*Client)

// WithTTL sets how long a lock is held at most; at least MinTTL, in whole milliseconds.
func WithTTL(ttl time.Duration) Option { return func(c *Client) { c.ttl = ttl } }

// New returns a Client whose locks last DefaultTTL unless WithTTL says otherwise.
func New(rdb redis.UniversalClient, options ...Option) *Client {
	c := &Client{rdb: rdb, ttl: DefaultTTL}
	for _, option := range options {
		option(c)
	}
	return c
}

func checkTTL(name string, ttl time.Duration) error {
	if ttl < MinTTL {
		return fmt.Errorf("lock: %s %s: use at least %s", name, ttl, MinTTL)
	}
	return nil
}

// newToken returns a name for one holder. It is compared whole, and random, so that no two calls ever share one.
func newToken() string { return uuid.NewString() }

// validUntil is when the holder of a lease must stop. It counts from before the request was sent, which is earlier than
// the server began to count, by this machine's monotonic clock, which no time change moves; the margin covers clocks that
// run at different speeds and the server's rounding to milliseconds.
func validUntil(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}
