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
	// pollEvery is how often one who waits alone asks, in case that a message was lost or a holder died.
	pollEvery = time.Second
	// pollsShared: so many who wait for one lock may poll at their full pace; from there on they take turns, so that a
	// crowd is no heavier than ten.
	pollCrowd = 10
	// maxQueue bounds how slow they become.
	maxPollQueue = 300
	minPoll  = 10 * time.Millisecond
	// handedFor is how long a lock is kept for the one whom it is handed over to; acquire.lua and release.lua say it too.
	transferTTL = time.Second
)

// quest is one call that wants something that others may have.
type acquisition struct {
	client  *Client
	id      string // the hold
	timeout    time.Duration
	strict  bool          // a call under way ends with the context; see call
	blocking bool          // wait at all
	poll    time.Duration // at most this long between two looks
	renews bool          // who gets it renews it, so that what is handed over need not be claimed; see handed
	requester
}

// asker is what a quest is for.
type requester interface {
	// ask once. With a channel it joins the queue; again says that it may stand there already.
	try(ctx context.Context, channel string, again bool) (scripts.Waiting, error)
	// leave takes back whatever asking may have done.
	withdraw(ctx context.Context, channel string)
}

// run asks until it has it. It returns when the winning call was sent; or, of what was handed over and not claimed yet, an instant
// before that.
func (q *acquisition) run(ctx context.Context) (got scripts.Waiting, sent time.Time, handed bool, err error) {
	c := q.client
	if err := c.ready(ctx); err != nil {
		return got, sent, false, err
	}
	if !q.blocking {
		got, sent, err = q.tryOnce(ctx)
		return got, sent, false, err
	}
	if q.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.timeout)
		defer cancel()
	}
	channel, again := "", false
	var queued time.Time   // when the first call was sent that may have joined the queue
	if c.subscriber.register(q.id) { // else we ask first: most locks are free, and need no ear
		channel = c.channel
	}
	defer func() {
		if channel != "" {
			c.subscriber.deregister(q.id)
		}
	}()
	for {
		sent = time.Now()
		got, err = q.request(ctx, channel, again)
		if err != nil {
			q.undo(ctx, channel, err)
			return got, sent, false, q.waitError(ctx, err)
		}
		if got.Fence != 0 {
			return got, sent, false, nil
		}
		if ctx.Err() != nil {
			q.withdraw(ctx, channel)
			return got, sent, false, q.waitError(ctx, err)
		}
		if channel == "" {
			c.subscriber.subscribe(ctx, c)
			channel = c.channel // without an ear we queue and poll
			c.subscriber.register(q.id)
			continue
		}
		if !again {
			queued, again = sent, true
		}
		fence, awake := q.await(ctx, got)
		if !awake {
			q.withdraw(ctx, channel)
			return got, sent, false, q.waitError(ctx, context.Cause(ctx))
		}
		if fence != 0 && q.transferIsValid(queued) {
			return scripts.Waiting{Fence: fence}, queued, true, nil
		}
	}
}

// once is a try that does not wait.
func (q *acquisition) tryOnce(ctx context.Context) (got scripts.Waiting, sent time.Time, err error) {
	sent = time.Now()
	got, err = q.request(ctx, "", false)
	switch {
	case err != nil:
		q.undo(ctx, "", err)
	case got.Fence == 0:
		err = ErrNotAcquired
	}
	return got, sent, err
}

// call asks once. A call that is cut off may still run, even after the one that takes it back; then the lock would be
// nobody's until its lease ends. So the end of a context waits for the answer, for at most two seconds (of a Redis client that
// ends calls at their deadlines).
func (q *acquisition) request(ctx context.Context, channel string, again bool) (scripts.Waiting, error) {
	deadline, has := ctx.Deadline()
	if !has || q.strict || time.Until(deadline) >= cleanupTimeout {
		return q.try(ctx, channel, again)
	}
	return q.try(detached(ctx), channel, again)
}

// handed tells whether a lock that we were told to have is surely ours still, so that the round trip which claims it can be
// saved. The message may be old. But nobody hands us anything before we queued, and then it is kept for handedFor: until so
// long after we queued, a message that names this hold can't be out of date. The other half of the time is left for renewal.
func (q *acquisition) transferIsValid(queued time.Time) bool {
	return q.renews && time.Since(queued) < transferTTL/2
}

// sleep until it is worth to ask again, or until a lock is handed over, whose fence it returns. awake is false when the wait
// is over.
func (q *acquisition) await(ctx context.Context, seen scripts.Waiting) (fence int64, awake bool) {
	timer := time.NewTimer(q.pollInterval(seen))
	defer timer.Stop()
	select {
	case fence = <-q.client.subscriber.notification(q.id):
	case <-timer.C:
	case <-ctx.Done():
		return 0, false
	case <-q.client.closing.Done():
		return 0, false
	}
	return fence, true
}

// pause until the next poll: longer the more wait, and no longer than until a lease ends that nobody renews.
func (q *acquisition) pollInterval(seen scripts.Waiting) time.Duration {
	pause := max(min(pollEvery, q.poll), minPoll)
	pause += pause * time.Duration(min(seen.Queue, maxPollQueue)) / pollCrowd
	pause = pause*3/4 + rand.N(pause/2)
	if seen.Queue <= pollCrowd {
		pause = min(pause, seen.Left+time.Millisecond+rand.N(minPoll))
	}
	return pause
}

// failure is what the caller is told.
func (q *acquisition) waitError(ctx context.Context, err error) error {
	switch {
	case q.client.closed():
		return ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: the wait is over: %w", ErrNotAcquired, context.Cause(ctx))
	default:
		return err
	}
}

// abandon takes back what a failed call may have done all the same. A refusal leaves no doubt, unless we stood in the queue.
func (q *acquisition) undo(ctx context.Context, channel string, err error) {
	if channel == "" && q.client.refused(err) {
		return
	}
	q.withdraw(ctx, channel)
}

// refused reports whether the server itself told the error, of a call that was sent once: one whose first answer was lost may
// have been done before it was refused.
func (c *Client) refused(err error) bool { return !c.retries && serverAnswered(err) }

// told reports whether the server answered, if only to refuse.
func serverAnswered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
