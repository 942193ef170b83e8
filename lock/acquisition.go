package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	scripts "sluice/lua/lock"
)

const (
	// pollEvery is how often a lone waiter polls, in case a message was lost or a holder died.
	pollEvery = time.Second
	// pollCrowd is how many waiters of one lock may poll at full pace. More than that slow down, so that a crowd costs
	// the server no more than ten waiters do.
	pollCrowd = 10
	// maxPollQueue bounds how far they slow down.
	maxPollQueue = 300
	minPoll      = 10 * time.Millisecond
	// transferTTL is how long a lock is kept for the waiter it was transferred to. acquire.lua and release.lua use the
	// same value.
	transferTTL = time.Second
)

// acquisition is one call that wants something that others may hold.
type acquisition struct {
	client   *Client
	id       string // the hold
	timeout  time.Duration
	strict   bool          // a call in flight ends with the context; see request
	blocking bool          // wait at all
	poll     time.Duration // the longest time between two polls
	renews   bool          // the winner renews, so a transferred lock need not be claimed; see transferIsValid
	requester
}

// requester is the kind of lock that an acquisition is for.
type requester interface {
	// try asks once. With a channel it joins the queue; again says that it may be queued already.
	try(ctx context.Context, channel string, again bool) (scripts.AcquireReply, error)
	// free undoes everything that try may have done.
	free(ctx context.Context, channel string) (held bool, err error)
}

// grant is what an acquisition won.
type grant struct {
	fence       int64
	sent        time.Time // when the winning call was sent, or for a transferred lock an instant before it was transferred
	transferred bool      // by the message of the last holder, and not claimed yet
}

// run tries until it wins, or waits no longer.
func (a *acquisition) run(ctx context.Context) (grant, error) {
	c := a.client
	if err := c.ready(ctx); err != nil {
		return grant{}, err
	}
	if !a.blocking {
		return a.tryOnce(ctx)
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	channel, again := "", false
	var queued time.Time             // when the first call was sent that may have joined the queue
	if c.subscriber.register(a.id) { // otherwise try first: most locks are free and need no subscription
		channel = c.channel
	}
	defer func() {
		if channel != "" {
			c.subscriber.deregister(a.id)
		}
	}()
	for {
		sent := time.Now()
		got, err := a.request(ctx, channel, again)
		if err != nil {
			a.undo(ctx, channel, err)
			return grant{}, a.waitError(ctx, err)
		}
		if got.Fence != 0 {
			return grant{fence: got.Fence, sent: sent}, nil
		}
		if ctx.Err() != nil {
			a.withdraw(ctx, channel)
			return grant{}, a.waitError(ctx, err)
		}
		if channel == "" {
			c.subscriber.subscribe(ctx, c)
			channel = c.channel // without a subscription we queue and poll
			c.subscriber.register(a.id)
			continue
		}
		if !again {
			queued, again = sent, true
		}
		fence, waiting := a.await(ctx, got)
		if !waiting {
			a.withdraw(ctx, channel)
			return grant{}, a.waitError(ctx, context.Cause(ctx))
		}
		if fence != 0 && a.transferIsValid(queued) {
			return grant{fence: fence, sent: queued, transferred: true}, nil
		}
	}
}

// tryOnce does not wait.
func (a *acquisition) tryOnce(ctx context.Context) (grant, error) {
	sent := time.Now()
	got, err := a.request(ctx, "", false)
	switch {
	case err != nil:
		a.undo(ctx, "", err)
	case got.Fence == 0:
		err = ErrNotAcquired
	}
	return grant{fence: got.Fence, sent: sent}, err
}

// request tries once. A call that is cut off may still run, even after the one that withdraws it; then the lock would
// have no owner until its lease ends. So when the context ends, request still waits for the reply, for two seconds at
// most (with a Redis client that ends calls at their deadlines).
func (a *acquisition) request(ctx context.Context, channel string, again bool) (scripts.AcquireReply, error) {
	deadline, has := ctx.Deadline()
	if !has || a.strict || time.Until(deadline) >= cleanupTimeout {
		return a.try(ctx, channel, again)
	}
	return a.try(detached(ctx), channel, again)
}

// transferIsValid reports whether a lock that a message transferred to us is certainly still ours, which saves the
// round trip that claims it. The message may be old. But nothing is transferred to us before we queued, and a
// transferred lock is kept for transferTTL: until that long after we queued, a message that names this hold can't be
// out of date. Half of that time is left for the renewal.
func (a *acquisition) transferIsValid(queued time.Time) bool {
	return a.renews && time.Since(queued) < transferTTL/2
}

// await returns when it is worth trying again, or with the fence of a lock that was transferred to us. waiting is false
// when the wait is over.
func (a *acquisition) await(ctx context.Context, seen scripts.AcquireReply) (fence int64, waiting bool) {
	timer := time.NewTimer(a.pollInterval(seen))
	defer timer.Stop()
	select {
	case fence = <-a.client.subscriber.notification(a.id):
	case <-timer.C:
	case <-ctx.Done():
		return 0, false
	case <-a.client.closing.Done():
		return 0, false
	}
	return fence, true
}

// pollInterval is the time until the next poll: the longer the more wait, and no longer than the rest of a lease that
// is not renewed.
func (a *acquisition) pollInterval(seen scripts.AcquireReply) time.Duration {
	interval := max(min(pollEvery, a.poll), minPoll)
	interval += interval * time.Duration(min(seen.Queue, maxPollQueue)) / pollCrowd
	interval = interval*3/4 + rand.N(interval/2)
	if seen.Queue <= pollCrowd {
		interval = min(interval, seen.Left+time.Millisecond+rand.N(minPoll))
	}
	return interval
}

// waitError is what the caller gets for an acquisition that ended with err.
func (a *acquisition) waitError(ctx context.Context, err error) error {
	switch {
	case a.client.closed():
		return ErrClosed
	case ctx.Err() != nil:
		return waitEnded(ctx)
	default:
		return err
	}
}

func waitEnded(ctx context.Context) error {
	return fmt.Errorf("%w: the wait is over: %w", ErrNotAcquired, context.Cause(ctx))
}

// withdraw gives up a wait. Its own failure is not reported: the first error says more, and time has the same effect.
func (a *acquisition) withdraw(ctx context.Context, channel string) {
	_, _ = a.free(detached(ctx), channel)
}

// undo takes back what a failed call may have done after all. A refusal leaves no doubt, unless we were queued.
func (a *acquisition) undo(ctx context.Context, channel string, err error) {
	if channel == "" && a.client.refused(err) {
		return
	}
	a.withdraw(ctx, channel)
}

// refused reports whether the server itself refused a call that was sent once. A call that was sent again after its
// first reply was lost may have been done before it was refused.
func (c *Client) refused(err error) bool { return !c.retries && serverAnswered(err) }

// serverAnswered reports whether an error is an answer of the server, such as a refusal.
func serverAnswered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
