package pipeline

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// pause is the wait between attempts: exponential, with jitter, from backoffMin to backoffMax.
type pause struct{ next *backoff.ExponentialBackOff }

func newPause() pause {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = backoffMin, backoffMax
	return pause{b}
}

// wait waits, and is cut short by the context.
func (p pause) wait(ctx context.Context) { sleep(ctx, p.next.NextBackOff()) }

// over starts again from the shortest wait.
func (p pause) over() { p.next.Reset() }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
