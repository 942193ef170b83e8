package webhook

import (
	"context"
	"time"
)

// delivery is one endpoint's turn: event after event, until there are no more, one fails, or the claim is lost. It belongs
// to one goroutine.
type endpointRun struct {
	*Deliverer
	claim     Claim
	cursor    int64     // passed, as far as this process knows
	delivered bool      // whether anything was delivered since the last note
	savedAt     time.Time // when the lease was last prolonged, or before
}

// run delivers what there is.
func (t *endpointRun) run(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := t.next(ctx)
		if err != nil {
			t.logFailure(ctx, "events can't be read", err)
			break
		}
		for i := range events {
			if goOn := t.process(ctx, &events[i]); !goOn {
				return
			}
		}
		if len(events) < pageEvents {
			break // what comes now is found by the next look
		}
		if !t.save(ctx, t.lease) {
			return
		}
	}
	t.save(ctx, 0)
}

func (t *endpointRun) next(ctx context.Context) (events []Event, err error) {
	err = t.call(ctx, func(ctx context.Context) (err error) {
		events, err = t.store.NextEvents(ctx, t.cursor, t.claim.Types, pageEvents)
		return err
	})
	return events, err
}

// pass delivers an event, if the endpoint wants it. It returns false when this turn is over.
func (t *endpointRun) process(ctx context.Context, e *Event) bool {
	if e.Data == nil {
		t.cursor = e.Position
		return true
	}
	if time.Since(t.savedAt) >= saveEvery && !t.save(ctx, t.lease) {
		return false
	}
	if ctx.Err() != nil {
		t.save(ctx, 0)
		return false
	}
	result := t.send(ctx, e)
	if result.Outcome == Failed && ctx.Err() != nil { // cut off by our own end, which says nothing about the receiver
		t.save(ctx, 0)
		return false
	}
	t.metrics.delivered(t.claim.ID, result)
	if result.Outcome != Delivered {
		t.fail(ctx, e, result)
		return false
	}
	t.cursor, t.delivered, t.claim.Attempts = e.Position, true, 0
	return true
}

// send lets a delivery under way end well when the process is told to stop.
func (t *endpointRun) send(ctx context.Context, e *Event) Result {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stop := context.AfterFunc(ctx, func() {
		sleep(sending, stopGrace)
		cut()
	})
	defer stop()
	return t.sender.send(sending, &t.claim.Endpoint, e)
}

// note tells Postgres what is done, and prolongs the claim or gives it up. It returns false when this turn is over. What
// could not be noted is delivered again by whoever claims the endpoint next.
func (t *endpointRun) save(ctx context.Context, lease time.Duration) bool {
	asked, kept := time.Now(), false
	err := t.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		kept, err = t.store.Advance(ctx, &t.claim, Progress{Cursor: t.cursor, Delivered: t.delivered, Lease: lease})
		return err
	})
	if err != nil {
		t.logFailure(ctx, "deliveries can't be noted, and will happen again", err)
		return false
	}
	t.savedAt, t.delivered = asked, false
	return kept
}

func (t *endpointRun) fail(ctx context.Context, e *Event, r Result) {
	failures := t.claim.Attempts + 1
	f := Failure{Error: r.Error, Gone: r.Outcome == Gone, Attempts: failures, Backoff: max(t.backoff(failures), r.RetryAfter)}
	disabled := ""
	err := t.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		disabled, err = t.store.Fail(ctx, &t.claim, Progress{Cursor: t.cursor, Delivered: t.delivered}, f)
		return err
	})
	switch {
	case err != nil:
		t.logFailure(ctx, "a failed delivery can't be noted", err)
	case disabled != "":
		t.log.Error("an endpoint is disabled; sluice endpoint enable lets it go on where it stopped",
			"endpoint", t.claim.ID, "reason", disabled, "event", e.ID)
	default:
		t.log.Warn("a delivery failed and will be repeated", "endpoint", t.claim.ID, "event", e.ID, "type", e.Type,
			"attempt", failures, "next_in", f.Backoff, "error", r.Error)
	}
}

func (t *endpointRun) logFailure(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		t.log.Warn(what, "endpoint", t.claim.ID, "error", err)
	}
}
