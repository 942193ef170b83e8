package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	scripts "sluice/lua/lock"
)

// grip is how a lease lies in Redis: what to renew, and how to free it.
type record interface {
	renewals() []scripts.Renewal // without TTL
	free(ctx context.Context) (held bool, err error)
}

// lease is a Hold on one server. Its clock is local: whatever the network does, it is over at its deadline.
type lease struct {
	record
	client *Client
	fence  int64
	ttl    time.Duration
	parent context.Context // of the work; renewal ends with it
	renews   bool            // renewed by the client

	mu       sync.Mutex // protects the rest
	deadline time.Time
	ended    error // why it is over: nil, ErrLeaseLost or errUnlocked
	work     context.Context
	cancel   context.CancelCauseFunc
	timer    *time.Timer // ends the work at the deadline; made with it
	watcher  func()      // of a group; told of a new deadline and of the end

	// Of the renewer, under its mutex.
	due  time.Time
	renewing bool
}

var errUnlocked = fmt.Errorf("%w: it was unlocked", context.Canceled)

// hold makes a lease of what was taken by a call that was sent at an instant, for first, and then renewed for ttl each time.
// It returns ErrLeaseLost, and frees, when the answer came too late.
func (c *Client) newLease(ctx context.Context, g record, fence int64, sent time.Time, first, ttl time.Duration, keep bool) (*lease, error) {
	l := &lease{record: g, client: c, fence: fence, ttl: ttl, parent: ctx, renews: keep, deadline: validUntil(sent, first)}
	if ctx.Err() != nil { // meanwhile nobody wants it any more
		return nil, errors.Join(fmt.Errorf("%w: the wait is over: %w", ErrNotAcquired, context.Cause(ctx)), l.release(ctx))
	}
	if !time.Now().Before(l.deadline) {
		err := fmt.Errorf("%w: Redis took %s to answer", ErrLeaseLost, time.Since(sent))
		return nil, errors.Join(err, l.release(ctx))
	}
	if keep {
		c.renewer.add(c, l, sent.Add(first/renewPart))
	}
	return l, nil
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

// begin needs mu.
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

// end is where every lease ends, once. It reports whether it was still alive.
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

// alive tells whether the lease is good, and until when.
func (l *lease) alive() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, l.ended == nil && time.Now().Before(l.deadline)
}

// left is how much of the lease is, at most the TTL; all of it when it is over, since there is no hurry any more.
func (l *lease) remaining() time.Duration {
	until, alive := l.alive()
	if !alive {
		return l.ttl
	}
	return min(l.ttl, time.Until(until))
}

// renewed takes the answer to a renewal that was sent at an instant. One that comes after the deadline is void: the holder
// was told that it is over.
func (l *lease) applyRenewal(sent time.Time, ttl time.Duration) {
	until := validUntil(sent, ttl)
	l.mu.Lock()
	now := time.Now()
	good := l.ended == nil && now.Before(l.deadline) && until.After(l.deadline)
	if good {
		l.deadline = until // the timer finds out when it fires
	}
	watcher := l.watcher
	l.mu.Unlock()
	if good && watcher != nil {
		watcher()
	}
}

// watch tells a group of every change.
func (l *lease) watch(watcher func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watcher = watcher
	l.startContext() // so that the deadline is noticed
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
	holds := l.renewals()
	for i := range holds {
		holds[i].TTL = d
	}
	sent := time.Now()
	ours, err := scripts.Renew(ctx, l.client.rdb, holds)
	if err != nil {
		return err
	}
	for _, is := range ours {
		if !is {
			l.end(ErrLeaseLost)
			return fmt.Errorf("%w: Redis has it no more", ErrNotHeld)
		}
	}
	l.applyRenewal(sent, d)
	if _, alive := l.alive(); !alive {
		return fmt.Errorf("%w: the lease ended meanwhile", ErrNotHeld)
	}
	return nil
}

func (l *lease) Unlock(ctx context.Context) error {
	alive := l.end(errUnlocked) // before anything is sent: no renewal follows
	err := l.release(ctx)
	if err == nil && !alive {
		return fmt.Errorf("%w: the lease was over, or it was unlocked before", ErrNotHeld)
	}
	return err
}

// release frees what may be held. A reply that was lost is asked for once more.
func (l *lease) release(ctx context.Context) error {
	ctx = detached(ctx)
	held, err := l.free(ctx)
	if err != nil && !serverAnswered(err) && ctx.Err() == nil {
		var again error
		if _, again = l.free(ctx); again == nil { // not held now: the first call freed it
			return nil
		}
	}
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("%w: Redis has it no more", ErrNotHeld)
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

// workContext looks at the clock besides: a timer may fire late on a busy machine.
type workContext struct {
	context.Context
	check func()
}

func (w workContext) Err() error {
	w.check()
	return w.Context.Err()
}
