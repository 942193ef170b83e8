package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	scripts "sluice/lua/lock"
)

// record is the part of a lease that is stored in Redis: what to renew, and how to free it.
type record interface {
	renewals() []scripts.Renewal                                     // without TTL
	free(ctx context.Context, channel string) (held bool, err error) // with a channel also from the queue
}

// lease is a Hold on one server. Its clock is local: whatever the network does, it ends at its deadline.
type lease struct {
	record
	client *Client
	fence  int64
	ttl    time.Duration
	parent context.Context // of the work; renewal ends with it
	renews bool            // renewed by the client

	mu       sync.Mutex // protects the rest
	deadline time.Time
	ended    error // why it is over: nil, ErrLeaseLost or errUnlocked
	work     context.Context
	cancel   context.CancelCauseFunc
	timer    *time.Timer // ends the work at the deadline; made with it
	watcher  func()      // of a group; called with each new deadline and at the end

	// Of the renewer, under its mutex.
	due      time.Time
	renewing bool
}

var (
	errUnlocked = fmt.Errorf("%w: it was unlocked", context.Canceled)
	errGone     = fmt.Errorf("%w: Redis has it no more", ErrNotHeld)
	errOver     = fmt.Errorf("%w: the lease was over, or it was unlocked before", ErrNotHeld)
)

// newLease makes a lease of what an acquisition won, and renews it for ttl each time if renews is set. When the reply
// came too late it frees what was won and returns ErrLeaseLost.
func (c *Client) newLease(ctx context.Context, r record, won grant, ttl time.Duration, renews bool) (*lease, error) {
	first := ttl // the length of the lease until it is renewed
	if won.transferred {
		first = transferTTL // whatever the TTL is: a shorter one may be over since we queued
	}
	l := &lease{
		record: r, client: c, fence: won.fence, ttl: ttl, parent: ctx, renews: renews, deadline: validUntil(won.sent, first),
	}
	if ctx.Err() != nil { // the caller no longer wants it
		return nil, errors.Join(waitEnded(ctx), l.release(ctx))
	}
	if err := checkDeadline(l.deadline, won.sent); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	if renews {
		c.renewer.add(c, l, won.sent.Add(first/renewPart))
	}
	return l, nil
}

// checkDeadline returns ErrLeaseLost when the reply to a call came after the end of the lease that it gave.
func checkDeadline(deadline, sent time.Time) error {
	if time.Now().Before(deadline) {
		return nil
	}
	return fmt.Errorf("%w: Redis took %s to answer", ErrLeaseLost, time.Since(sent))
}

func (l *lease) Fence() int64 { return l.fence }

func (l *lease) ValidUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Context is made when it is first asked for: a lock that is held for an instant needs none.
func (l *lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startContext()
	return workContext{l.work, l.check}
}

// startContext needs mu.
func (l *lease) startContext() {
	if l.work != nil {
		return
	}
	l.work, l.cancel = context.WithCancelCause(l.parent)
	if l.ended != nil {
		l.cancel(l.ended)
		return
	}
	l.timer = time.AfterFunc(time.Until(l.deadline), l.check)
}

// check ends the lease when its time is up.
func (l *lease) check() {
	l.mu.Lock()
	left := time.Until(l.deadline)
	if l.ended == nil && left > 0 && l.timer != nil {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.end(ErrLeaseLost)
	}
}

// end ends the lease, once. It reports whether the lease was still alive.
func (l *lease) end(why error) bool {
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return false
	}
	alive := time.Now().Before(l.deadline)
	if !alive {
		why = ErrLeaseLost
	}
	l.ended = why
	if l.work != nil {
		l.cancel(why)
		l.timer.Stop()
	}
	watcher := l.watcher
	l.mu.Unlock()
	if l.renews {
		l.client.renewer.remove(l)
	}
	if watcher != nil {
		watcher()
	}
	return alive
}

// alive returns the deadline, and whether the lease is valid.
func (l *lease) alive() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, l.ended == nil && time.Now().Before(l.deadline)
}

// remaining returns how much of the lease is left, at most the TTL. For a lease that is over it returns the whole TTL,
// since nothing is urgent any more.
func (l *lease) remaining() time.Duration {
	until, alive := l.alive()
	if !alive {
		return l.ttl
	}
	return min(l.ttl, time.Until(until))
}

// applyRenewal takes the reply to a renewal. One that comes after the deadline is void: by then the holder's context
// has ended.
func (l *lease) applyRenewal(sent time.Time, ttl time.Duration) {
	until := validUntil(sent, ttl)
	l.mu.Lock()
	now := time.Now()
	good := l.ended == nil && now.Before(l.deadline) && until.After(l.deadline)
	if good {
		l.deadline = until // the timer is reset when it fires
	}
	watcher := l.watcher
	l.mu.Unlock()
	if good && watcher != nil {
		watcher()
	}
}

// watch calls the watcher with every change.
func (l *lease) watch(watcher func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watcher = watcher
	l.startContext() // so that a timer fires at the deadline
}

func (l *lease) Extend(ctx context.Context, d time.Duration) error {
	if err := checkTTL("extension", d); err != nil {
		return err
	}
	deadline, alive := l.alive()
	if !alive {
		return fmt.Errorf("%w: the lease is over", ErrNotHeld)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	sent := time.Now()
	held, err := l.client.extend(ctx, l, d)
	if err != nil {
		return err
	}
	if !held {
		l.end(ErrLeaseLost)
		return errGone
	}
	l.applyRenewal(sent, d)
	if _, alive := l.alive(); !alive {
		return fmt.Errorf("%w: the lease ended meanwhile", ErrNotHeld)
	}
	return nil
}

// extend makes what a record names last for d.
func (c *Client) extend(ctx context.Context, r record, d time.Duration) (held bool, err error) {
	renewals := r.renewals()
	for i := range renewals {
		renewals[i].TTL = d
	}
	all, err := scripts.Renew(ctx, c.rdb, renewals)
	return !slices.Contains(all, false), err
}

func (l *lease) Unlock(ctx context.Context) error {
	alive := l.end(errUnlocked) // before anything is sent, so that no renewal follows
	err := l.release(ctx)
	if err == nil && !alive {
		return errOver
	}
	return err
}

// release frees what may be held. When a reply is lost it asks once more.
func (l *lease) release(ctx context.Context) error {
	ctx = detached(ctx)
	held, err := l.free(ctx, "")
	if err != nil && !serverAnswered(err) && ctx.Err() == nil {
		if _, again := l.free(ctx, ""); again == nil { // not held now, so the first call freed it
			return nil
		}
	}
	if err != nil {
		return err
	}
	if !held {
		return errGone
	}
	return nil
}

func do(ctx context.Context, h Hold, fn func(context.Context, int64) error) (err error) {
	work := h.Context()
	defer func() {
		lost := context.Cause(work)
		if unlock := h.Unlock(ctx); unlock != nil {
			err = errors.Join(err, unlock)
		}
		if errors.Is(lost, ErrLeaseLost) && !errors.Is(err, ErrLeaseLost) {
			err = errors.Join(err, ErrLeaseLost)
		}
	}()
	return fn(work, h.Fence())
}

// workContext also checks the clock in Err: a timer may fire late on a busy machine.
type workContext struct {
	context.Context
	check func()
}

func (w workContext) Err() error {
	w.check()
	return w.Context.Err()
}

// validUntil is when the holder of a lease must stop. It counts from before the request was sent, which is before the
// server began to count, by this machine's monotonic clock, which no time change moves. The margin covers clocks that
// run at different speeds and the server's rounding to milliseconds.
func validUntil(sent time.Time, lease time.Duration) time.Time {
	lease = lease.Truncate(time.Millisecond)
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}
