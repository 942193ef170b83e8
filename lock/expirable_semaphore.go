package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	scripts "sluice/lua/lock"
)

// ExpirableSemaphore is a semaphore whose permits have an id and an end. They are not renewed; any process that knows
// the id may release or extend the permit. It suits a permit that belongs to an id in a store rather than to a running
// function.
type ExpirableSemaphore struct {
	shared sharedLock
	n      int64
}

// Permit is one of the n. It is free again at ValidUntil, by this machine's monotonic clock, unless it is extended.
type Permit struct {
	ID         string
	ValidUntil time.Time
}

// ExpirableSemaphore returns the semaphore of a key with n permits, 1 to MaxPermits. It shares its permits with the
// Semaphore of the same key.
func (c *Client) ExpirableSemaphore(key string, n int64) ExpirableSemaphore {
	return ExpirableSemaphore{sharedLock{c, key}, n}
}

// Acquire waits until ctx ends for one permit, and keeps it for lease, MinTTL to MaxTTL.
func (s ExpirableSemaphore) Acquire(ctx context.Context, lease time.Duration) (Permit, error) {
	return s.take(ctx, lease, true)
}

// TryAcquire takes a permit if one is free and there is no waiter, otherwise it returns ErrNotAcquired.
func (s ExpirableSemaphore) TryAcquire(ctx context.Context, lease time.Duration) (Permit, error) {
	return s.take(ctx, lease, false)
}

func (s ExpirableSemaphore) take(ctx context.Context, lease time.Duration, blocking bool) (Permit, error) {
	if err := errors.Join(checkPermits(1, s.n), checkTTL("lease", lease)); err != nil {
		return Permit{}, err
	}
	r, won, err := s.shared.acquire(ctx, s.share(), blocking, 0, lease)
	if err != nil {
		return Permit{}, err
	}
	p := Permit{ID: r.who.Hold, ValidUntil: validUntil(won.sent, lease)}
	if err := checkDeadline(p.ValidUntil, won.sent); err != nil {
		return Permit{}, errors.Join(err, s.Release(ctx, p.ID))
	}
	return p, nil
}

// Release gives a permit back, although ctx may have ended, within two seconds. ErrNotHeld: its time was over, it was
// released before, or no such permit exists.
func (s ExpirableSemaphore) Release(ctx context.Context, id string) error {
	r, err := s.record(id)
	if err != nil {
		return err
	}
	return (&lease{record: r}).release(ctx)
}

// Extend makes the permit last for d from now on, if it would end before, and returns its end. ErrNotHeld as for
// Release.
func (s ExpirableSemaphore) Extend(ctx context.Context, id string, d time.Duration) (time.Time, error) {
	r, err := s.record(id)
	if err == nil {
		err = checkTTL("extension", d)
	}
	if err == nil {
		err = s.shared.client.ready(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	sent := time.Now()
	held, err := s.shared.client.extend(ctx, r, d)
	if err != nil {
		return time.Time{}, err
	}
	if !held {
		return time.Time{}, fmt.Errorf("%w: permit %.100q", ErrNotHeld, id)
	}
	return validUntil(sent, d), nil
}

func (s ExpirableSemaphore) share() scripts.Share {
	return scripts.Share{Kind: scripts.Permit, Amount: 1, Limit: s.n}
}

// record is that of a permit that another process may have acquired.
func (s ExpirableSemaphore) record(id string) (*shareRecord, error) {
	if err := errors.Join(checkKey(s.shared.key), checkPermits(1, s.n)); err != nil {
		return nil, err
	}
	if !isID(id) {
		return nil, fmt.Errorf("%w: permit %.100q: that is no id", ErrNotHeld, id)
	}
	c := s.shared.client
	return &shareRecord{client: c, keys: s.shared.keys(), share: s.share(), who: c.caller(Owner{}, id)}, nil
}

// isID reports whether newID may have made it.
func isID(id string) bool {
	for _, r := range id {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') && r != '.' {
			return false
		}
	}
	return id != "" && len(id) <= 64
}
