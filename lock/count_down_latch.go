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

// ErrCountDiffers says that a latch was made for another number of parties.
var ErrCountDiffers = errors.New("lock: the latch was made for another count")

const (
	// MaxParties bounds a latch: who has arrived is remembered by name.
	MaxParties = 100_000
	// MaxPartyBytes bounds a party's name.
	MaxPartyBytes = 256
)

// CountDownLatch opens once, when n parties have arrived, and stays open until its life ends; then it is as if it never was.
// Parties have names: one that arrives twice, or by a call that is repeated, counts once, and one that died is known to
// have arrived or not.
type CountDownLatch struct {
	client *Client
	key    string
	spec   scripts.LatchSpec
}

// CountDownLatch returns the latch of a key for n parties, 1 to MaxParties, that lives for life after it is first used,
// MinTTL to MaxTTL. All who use it say the same.
func (c *Client) CountDownLatch(key string, n int64, life time.Duration) CountDownLatch {
	return CountDownLatch{c, key, scripts.LatchSpec{Count: n, Life: life}}
}

// CountDown says that a party, of 1 to MaxPartyBytes bytes, has arrived, and returns how many are missing. It may be
// repeated. An open latch needs nobody: it stays at 0.
func (l CountDownLatch) CountDown(ctx context.Context, party string) (missing int64, err error) {
	if party == "" || len(party) > MaxPartyBytes {
		return 0, fmt.Errorf("%w: a party of %d bytes: use 1 to %d", ErrBadKey, len(party), MaxPartyBytes)
	}
	return l.call(ctx, party, scripts.Caller{}, false)
}

// Missing is how many parties have yet to arrive. It makes no latch.
func (l CountDownLatch) Missing(ctx context.Context) (int64, error) {
	return l.call(ctx, "", scripts.Caller{}, false)
}

// Wait returns when the latch is open, or ErrNotAcquired when ctx ends before.
func (l CountDownLatch) Wait(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	c, id := l.client, l.client.newID()
	q := acquisition{client: c, id: id, blocking: true, poll: pollEvery, requester: latchWaiter{l, c.caller(Owner{}, id)}}
	_, _, _, err := q.run(ctx)
	return err
}

// latchWait is one who waits.
type latchWaiter struct {
	latch CountDownLatch
	who   scripts.Caller
}

func (w latchWaiter) try(ctx context.Context, channel string, _ bool) (scripts.Waiting, error) {
	w.who.Channel = channel
	missing, err := w.latch.send(ctx, "", w.who, false)
	if err == nil && missing == 0 {
		return scripts.Waiting{Fence: 1}, nil
	}
	return scripts.Waiting{Queue: 1, Left: pollEvery}, err
}

// leave takes him out of the queue. Where that fails, his place ends with the latch.
func (w latchWaiter) withdraw(ctx context.Context, channel string) {
	w.who.Channel = channel
	_, _ = w.latch.send(detached(ctx), "", w.who, true)
}

func (l CountDownLatch) call(ctx context.Context, party string, who scripts.Caller, leave bool) (int64, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	if err := l.client.ready(ctx); err != nil {
		return 0, err
	}
	return l.send(ctx, party, who, leave)
}

func (l CountDownLatch) send(ctx context.Context, party string, who scripts.Caller, leave bool) (int64, error) {
	keys := scripts.Keys{Lock: l.key, Queue: siblingKey(l.key, "queue")}
	missing, err := scripts.Latch(ctx, l.client.rdb, keys, l.spec, party, who, leave)
	if redis.HasErrorPrefix(err, "DIFFERS") || err != nil && strings.Contains(err.Error(), "DIFFERS latch:") {
		return 0, fmt.Errorf("%w: %w", ErrCountDiffers, err)
	}
	return missing, err
}

func (l CountDownLatch) check() error {
	return errors.Join(checkKey(l.key), checkCount("parties", l.spec.Count, MaxParties), checkTTL("life", l.spec.Life))
}
