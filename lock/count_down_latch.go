package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	scripts "sluice/lua/lock"
)

// ErrCountDiffers is returned for a latch that was made for another number of parties.
var ErrCountDiffers = errors.New("lock: the latch was made for another count")

const (
	// MaxParties bounds a latch: each party that has arrived is stored by name.
	MaxParties = 100_000
	// MaxPartyBytes bounds a party's name.
	MaxPartyBytes = 256
)

// CountDownLatch opens once, when n parties have arrived, and stays open until its life ends; after that it no longer
// exists. Parties have names: a party that arrives twice, or by a repeated call, counts once, and of one that died it
// is known whether it had arrived.
type CountDownLatch struct {
	client *Client
	key    string
	spec   scripts.LatchSpec
}

// CountDownLatch returns the latch of a key for n parties, 1 to MaxParties, that lives for life after its first use,
// MinTTL to MaxTTL. All users must give the same values.
func (c *Client) CountDownLatch(key string, n int64, life time.Duration) CountDownLatch {
	return CountDownLatch{c, key, scripts.LatchSpec{Count: n, Life: life}}
}

// CountDown records that a party, of 1 to MaxPartyBytes bytes, has arrived, and returns how many are missing. It may be
// repeated. On an open latch it returns 0.
func (l CountDownLatch) CountDown(ctx context.Context, party string) (missing int64, err error) {
	if party == "" || len(party) > MaxPartyBytes {
		return 0, fmt.Errorf("%w: a party of %d bytes: use 1 to %d", ErrBadKey, len(party), MaxPartyBytes)
	}
	return l.call(ctx, party)
}

// Missing returns how many parties have yet to arrive. It does not create the latch.
func (l CountDownLatch) Missing(ctx context.Context) (int64, error) {
	return l.call(ctx, "")
}

// Wait returns when the latch is open, or ErrNotAcquired when ctx ends first.
func (l CountDownLatch) Wait(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	c, id := l.client, l.client.newID()
	q := acquisition{client: c, id: id, blocking: true, poll: pollEvery, requester: latchWaiter{l, c.caller(Owner{}, id)}}
	_, err := q.run(ctx)
	return err
}

// latchWaiter is one call of Wait.
type latchWaiter struct {
	latch CountDownLatch
	who   scripts.Caller
}

func (w latchWaiter) try(ctx context.Context, channel string, _ bool) (scripts.AcquireReply, error) {
	w.who.Channel = channel
	missing, err := w.latch.send(ctx, "", w.who, false)
	if err == nil && missing == 0 {
		return scripts.AcquireReply{Fence: 1}, nil
	}
	return scripts.AcquireReply{Queue: 1, Left: pollEvery}, err
}

// free leaves the queue. Where that fails, the entry ends with the latch.
func (w latchWaiter) free(ctx context.Context, channel string) (bool, error) {
	w.who.Channel = channel
	_, err := w.latch.send(ctx, "", w.who, true)
	return false, err
}

func (l CountDownLatch) call(ctx context.Context, party string) (int64, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	if err := l.client.ready(ctx); err != nil {
		return 0, err
	}
	return l.send(ctx, party, scripts.Caller{}, false)
}

func (l CountDownLatch) send(ctx context.Context, party string, who scripts.Caller, leave bool) (int64, error) {
	keys := scripts.Keys{Lock: l.key, Queue: siblingKey(l.key, "queue")}
	missing, err := scripts.Latch(ctx, l.client.rdb, keys, l.spec, scripts.LatchCall{Party: party, Who: who, Leave: leave})
	if redis.HasErrorPrefix(err, "DIFFERS") || err != nil && strings.Contains(err.Error(), "DIFFERS latch:") {
		return 0, fmt.Errorf("%w: %w", ErrCountDiffers, err)
	}
	return missing, err
}

func (l CountDownLatch) check() error {
	return errors.Join(checkKey(l.key), checkCount("parties", l.spec.Count, MaxParties), checkTTL("life", l.spec.Life))
}
