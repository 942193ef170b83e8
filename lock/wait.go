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
	pollsShared = 10
	// maxQueue bounds how slow they become.
	maxQueue = 300
	minPoll  = 10 * time.Millisecond
	// handedFor is how long a lock is kept for the one whom it is handed over to; acquire.lua and release.lua say it too.
	handedFor = time.Second
)

// quest is one call that wants something that others may have.
type quest struct {
	client  *Client
	id      string // the hold
	wait    time.Duration
	strict  bool          // a call under way ends with the context; see call
	patient bool          // wait at all
	poll    time.Duration // at most this long between two looks
	renewed bool          // who gets it renews it, so that what is handed over need not be claimed; see handed
	asker
}

// asker is what a quest is for.
type asker interface {
	// ask once. With a channel it joins the queue; again says that it may stand there already.
	ask(ctx context.Context, channel string, again bool) (scripts.Waiting, error)
	// leave takes back whatever asking may have done.
	leave(ctx context.Context, channel string)
}

// run asks until it has it. It returns when the winning call was sent; or, of what was handed over and not claimed yet, an instant
// before that.
func (q *quest) run(ctx context.Context) (got scripts.Waiting, sent time.Time, handed bool, err error) {
	c := q.client
	if err := c.ready(ctx); err != nil {
		return got, sent, false, err
	}
	if !q.patient {
		got, sent, err = q.once(ctx)
		return got, sent, false, err
	}
	if q.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.wait)
		defer cancel()
	}
	channel, again := "", false
	var queued time.Time   // when the first call was sent that may have joined the queue
	if c.ear.enter(q.id) { // else we ask first: most locks are free, and need no ear
		channel = c.channel
	}
	defer func() {
		if channel != "" {
			c.ear.exit(q.id)
		}
	}()
	for {
		sent = time.Now()
		got, err = q.call(ctx, channel, again)
		if err != nil {
			q.abandon(ctx, channel, err)
			return got, sent, false, q.failure(ctx, err)
		}
		if got.Fence != 0 {
			return got, sent, false, nil
		}
		if ctx.Err() != nil {
			q.leave(ctx, channel)
			return got, sent, false, q.failure(ctx, err)
		}
		if channel == "" {
			c.ear.listen(ctx, c)
			channel = c.channel // without an ear we queue and poll
			c.ear.enter(q.id)
			continue
		}
		if !again {
			queued, again = sent, true
		}
		fence, awake := q.sleep(ctx, got)
		if !awake {
			q.leave(ctx, channel)
			return got, sent, false, q.failure(ctx, context.Cause(ctx))
		}
		if fence != 0 && q.handed(queued) {
			return scripts.Waiting{Fence: fence}, queued, true, nil
		}
	}
}

// once is a try that does not wait.
func (q *quest) once(ctx context.Context) (got scripts.Waiting, sent time.Time, err error) {
	sent = time.Now()
	got, err = q.call(ctx, "", false)
	switch {
	case err != nil:
		q.abandon(ctx, "", err)
	case got.Fence == 0:
		err = ErrNotAcquired
	}
	return got, sent, err
}

// call asks once. A call that is cut off may still run, even after the one that takes it back; then the lock would be
// nobody's until its lease ends. So the end of a context waits for the answer, for at most two seconds (of a Redis client that
// ends calls at their deadlines).
func (q *quest) call(ctx context.Context, channel string, again bool) (scripts.Waiting, error) {
	deadline, has := ctx.Deadline()
	if !has || q.strict || time.Until(deadline) >= cleanupTimeout {
		return q.ask(ctx, channel, again)
	}
	return q.ask(detached(ctx), channel, again)
}

// handed tells whether a lock that we were told to have is surely ours still, so that the round trip which claims it can be
// saved. The message may be old. But nobody hands us anything before we queued, and then it is kept for handedFor: until so
// long after we queued, a message that names this hold can't be out of date. The other half of the time is left for renewal.
func (q *quest) handed(queued time.Time) bool {
	return q.renewed && time.Since(queued) < handedFor/2
}

// sleep until it is worth to ask again, or until a lock is handed over, whose fence it returns. awake is false when the wait
// is over.
func (q *quest) sleep(ctx context.Context, seen scripts.Waiting) (fence int64, awake bool) {
	timer := time.NewTimer(q.pause(seen))
	defer timer.Stop()
	select {
	case fence = <-q.client.ear.sleep(q.id):
	case <-timer.C:
	case <-ctx.Done():
		return 0, false
	case <-q.client.closing.Done():
		return 0, false
	}
	return fence, true
}

// pause until the next poll: longer the more wait, and no longer than until a lease ends that nobody renews.
func (q *quest) pause(seen scripts.Waiting) time.Duration {
	pause := max(min(pollEvery, q.poll), minPoll)
	pause += pause * time.Duration(min(seen.Queue, maxQueue)) / pollsShared
	pause = pause*3/4 + rand.N(pause/2)
	if seen.Queue <= pollsShared {
		pause = min(pause, seen.Left+time.Millisecond+rand.N(minPoll))
	}
	return pause
}

// failure is what the caller is told.
func (q *quest) failure(ctx context.Context, err error) error {
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
func (q *quest) abandon(ctx context.Context, channel string, err error) {
	if channel == "" && q.client.refused(err) {
		return
	}
	q.leave(ctx, channel)
}

// refused reports whether the server itself told the error, of a call that was sent once: one whose first answer was lost may
// have been done before it was refused.
func (c *Client) refused(err error) bool { return !c.repeats && told(err) }

// told reports whether the server answered, if only to refuse.
func told(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
