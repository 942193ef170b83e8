package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	backoffMin = 50 * time.Millisecond // after the first error of a store
	backoffMax = 3 * time.Second       // after many: the store's recovery is noticed this late

	// While a buyer waits for the answer: short, because the whole request has some two seconds.
	requestBackoffMin = 10 * time.Millisecond
	requestBackoffMax = 250 * time.Millisecond
)

// Backoff waits between attempts: exponentially longer, with jitter.
type Backoff struct{ next *backoff.ExponentialBackOff }

// NewBackoff returns the backoff of a loop that runs for as long as the process: from 50 ms to 3 s.
func NewBackoff() Backoff { return newBackoff(backoffMin, backoffMax) }

// NewRequestBackoff returns the backoff of a call that a buyer waits for: from 10 to 250 ms.
func NewRequestBackoff() Backoff { return newBackoff(requestBackoffMin, requestBackoffMax) }

func newBackoff(least, most time.Duration) Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = least, most
	return Backoff{b}
}

// Wait waits for the next interval, or until the context ends.
func (b Backoff) Wait(ctx context.Context) { Sleep(ctx, b.next.NextBackOff()) }

// Reset starts again from the shortest interval.
func (b Backoff) Reset() { b.next.Reset() }

// Sleep waits for a duration, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
