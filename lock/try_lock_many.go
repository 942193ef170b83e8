package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	scripts "sluice/lua/lock"
)

// MaxBatch bounds the keys of one TryLockMany or UnlockMany.
const MaxBatch = scripts.MaxBatch

// Batch is the result of one TryLockMany.
type Batch struct {
	Token      string    // the value of every lock held; unique to the call
	Held       []bool    // Held[i] reports whether the i-th key is ours; false means that another holder has it
	ValidUntil time.Time // when the holder must have finished, by this machine's monotonic clock
}

// Mode is what a batch does when some of its locks are busy.
type Mode int

// The modes of TryLockMany.
const (
	BestEffort Mode = iota // take those that are free
	AllOrNone              // take all of them, or none
)

// TryLockMany takes, in one round trip, those of 1 to MaxBatch locks that are free, and does not wait for the others;
// with AllOrNone it takes all or none. A key named twice is held twice. All keys lie in one hash slot. Free them with
// UnlockMany and Batch.Token, or let lua.Settle do it; a lock that is never freed is free after the TTL.
//
// These locks are plain strings that contain the token: no queue, no owner, no fence, no renewal. That makes them
// cheap, and of another kind than Mutex: the two exclude each other on one key, but should not be mixed.
//
// After an error the caller holds nothing. Locks that the server may have given before its reply was lost are freed
// before TryLockMany returns, which may take two seconds longer than ctx allows; where the server can't be reached, the
// TTL frees them. On a full server the error is Redis' own OOM.
func (c *Client) TryLockMany(ctx context.Context, keys []string, mode ...Mode) (Batch, error) {
	if err := errors.Join(checkBatch(keys), checkTTL("ttl", c.ttl)); err != nil {
		return Batch{}, err
	}
	if err := c.ready(ctx); err != nil {
		return Batch{}, err
	}
	all := len(mode) > 0 && mode[0] == AllOrNone
	token := newToken() + "/" + strconv.FormatInt(c.ttl.Milliseconds(), 10) // with the lease: see try_many.lua
	sent := time.Now()
	held, err := scripts.TryMany(ctx, c.rdb, keys, token, c.ttl, all)
	if err != nil {
		c.undoBatch(ctx, keys, token, err)
		return Batch{}, err
	}
	if all && slices.Contains(held, false) {
		clear(held)
	}
	return Batch{Token: token, Held: held, ValidUntil: validUntil(sent, c.ttl)}, nil
}

func checkBatch(keys []string) error {
	if err := checkCount("keys", int64(len(keys)), MaxBatch); err != nil {
		return err
	}
	for _, key := range keys {
		if key == "" || len(key) > MaxKeyBytes {
			return fmt.Errorf("%w: %d bytes: use 1 to %d", ErrBadKey, len(key), MaxKeyBytes)
		}
	}
	return nil
}

// UnlockMany frees those of 1 to MaxBatch locks that are still held under the token, and no others. It works although
// ctx is cancelled, for at most two seconds; after an error the locks expire when their TTL ends.
func (c *Client) UnlockMany(ctx context.Context, keys []string, token string) error {
	_, err := scripts.UnlockMany(detached(ctx), c.rdb, keys, token)
	return err
}

// undoBatch frees what a failed call may have taken after all. A refusal leaves no doubt that nothing was taken. Its
// own failure is not reported, since the first error says more and the TTL has the same effect later.
func (c *Client) undoBatch(ctx context.Context, keys []string, token string, err error) {
	if c.refused(err) {
		return
	}
	_ = c.UnlockMany(ctx, keys, token)
}
