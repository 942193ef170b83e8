package webhook

import (
	"context"
	"time"
)

// endpointRun delivers to one claimed endpoint: event after event, until there are no more, one fails, or the claim is
// lost. It belongs to one goroutine.
type endpointRun struct {
	*Deliverer
	claim     Claim
	cursor    int64     // delivered or skipped, as far as this process knows
	delivered bool      // whether anything was delivered since the last save
	savedAt   time.Time // when the lease was last extended, or before
}

// run delivers all pending events, and those to be resent.
func (r *endpointRun) run(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := r.next(ctx)
		if err != nil {
			r.logFailure(ctx, "events can't be read", err)
			break
		}
		for i := range events {
			if !r.process(ctx, &events[i]) {
				return
			}
		}
		resends, err := r.resend(ctx)
		if err != nil || resends < 0 {
			return
		}
		if len(events) < pageEvents && resends < pageEvents {
			break // later events are found by the next poll
		}
		if !r.save(ctx, r.lease) {
			return
		}
	}
	r.save(ctx, 0)
}

func (r *endpointRun) next(ctx context.Context) (events []Event, err error) {
	err = r.call(ctx, func(ctx context.Context) (err error) {
		events, err = r.store.NextEvents(ctx, r.cursor, r.claim.Types, pageEvents)
		return err
	})
	return events, err
}

// process delivers an event, if the endpoint wants it. It returns false when this run is over.
func (r *endpointRun) process(ctx context.Context, e *Event) bool {
	if e.Data != nil && !r.deliver(ctx, e) {
		return false
	}
	r.cursor = e.Position
	return true
}

// resend delivers a page of the events that the endpoint is to get once more. What is new comes first, page by page: a
// thousand old ones must not delay what happens now. It returns how many there were, less than 0 when this run is
// over.
func (r *endpointRun) resend(ctx context.Context) (int, error) {
	var events []Resend
	err := r.call(ctx, func(ctx context.Context) (err error) {
		events, err = r.store.NextResends(ctx, r.claim.ID, pageEvents)
		return err
	})
	for i := 0; err == nil && i < len(events); i++ {
		result, over := r.attempt(ctx, &events[i].Event)
		switch {
		case over:
			return -1, nil
		case result.Outcome == Gone:
			r.fail(ctx, &events[i].Event, result)
			return -1, nil
		case result.Outcome != Delivered:
			r.failResend(ctx, &events[i], result)
			return -1, nil
		}
		err = r.call(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return r.store.MarkResent(ctx, r.claim.ID, &events[i])
		})
	}
	if err != nil {
		r.logFailure(ctx, "events can't be resent", err)
		r.save(ctx, 0)
	}
	return len(events), err
}

// deliver delivers an event. It returns false when this run is over.
func (r *endpointRun) deliver(ctx context.Context, e *Event) bool {
	result, over := r.attempt(ctx, e)
	if !over && result.Outcome != Delivered {
		r.fail(ctx, e, result)
		return false
	}
	return !over
}

// attempt sends an event once. over means that this run is, and that nothing is known of the event.
func (r *endpointRun) attempt(ctx context.Context, e *Event) (_ Result, over bool) {
	if time.Since(r.savedAt) >= saveEvery && !r.save(ctx, r.lease) {
		return Result{}, true
	}
	if ctx.Err() != nil {
		r.save(ctx, 0)
		return Result{}, true
	}
	result := r.send(ctx, e)
	if result.Outcome == Failed && ctx.Err() != nil { // cut off by our own stop, which says nothing about the receiver
		r.save(ctx, 0)
		return Result{}, true
	}
	r.metrics.delivered(r.claim.ID, result)
	if result.Outcome == Unsigned {
		r.withhold(ctx, result)
		return Result{}, true
	}
	if result.Outcome == Delivered {
		r.delivered, r.claim.Attempts = true, 0
	}
	return result, false
}

// withhold lets the events of an endpoint wait whose secret can't be used here. The receiver has not failed: after a
// day without ENCRYPTION_KEYS, every endpoint would be disabled.
func (r *endpointRun) withhold(ctx context.Context, result Result) {
	f := Failure{Error: result.Error, Ours: true, Backoff: r.withheld}
	err := r.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		_, err = r.store.FailEndpoint(ctx, &r.claim, Progress{Cursor: r.cursor, Delivered: r.delivered}, f)
		return err
	})
	if err != nil {
		r.logFailure(ctx, "that events wait can't be recorded", err)
	}
	r.said.Do(func() {
		r.log.Error("events can't be signed, and wait; set ENCRYPTION_KEYS as it was when the secret was stored, or give the "+
			"endpoint another one: sluice endpoint rotate", "endpoint", r.claim.ID, "next_in", r.withheld, "error", result.Error)
	})
}

// failResend records a failure of an event that was to arrive once more. It is the event's own: the endpoint goes on.
func (r *endpointRun) failResend(ctx context.Context, e *Resend, result Result) {
	givenUp := false
	wait := max(r.backoff(e.Attempts+1), result.RetryAfter)
	f := ResendFailure{Backoff: wait, Pause: max(min(wait, resendPause), result.RetryAfter)}
	err := r.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		givenUp, err = r.store.FailResend(ctx, r.claim.ID, e, f)
		return err
	})
	switch {
	case err != nil:
		r.logFailure(ctx, "a failed delivery can't be recorded", err)
	case givenUp:
		r.log.Error("an event that was to be resent is given up; it has failed for a day", "endpoint", r.claim.ID,
			"event", e.ID, "error", result.Error)
	default:
		r.log.Warn("an event could not be resent and will be again", "endpoint", r.claim.ID, "event", e.ID,
			"attempt", e.Attempts+1, "next_in", wait, "error", result.Error)
	}
	r.save(ctx, 0)
}

// send gives a delivery in flight time to finish when the process is asked to stop.
func (r *endpointRun) send(ctx context.Context, e *Event) Result {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stop := context.AfterFunc(ctx, func() {
		sleep(sending, stopGrace)
		cut()
	})
	defer stop()
	return r.sender.send(sending, &r.claim.Endpoint, e)
}

// save stores progress, and extends the claim or gives it up. It returns false when this run is over. What could not be
// saved is delivered again after the next claim of the endpoint.
func (r *endpointRun) save(ctx context.Context, lease time.Duration) bool {
	savedAt, kept := time.Now(), false
	err := r.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		kept, err = r.store.AdvanceEndpoint(ctx, &r.claim, Progress{Cursor: r.cursor, Delivered: r.delivered, Lease: lease})
		return err
	})
	if err != nil {
		r.logFailure(ctx, "progress can't be saved, so deliveries will be repeated", err)
		return false
	}
	r.savedAt, r.delivered = savedAt, false
	return kept
}

func (r *endpointRun) fail(ctx context.Context, e *Event, result Result) {
	failures := r.claim.Attempts + 1
	f := Failure{
		Error: result.Error, Gone: result.Outcome == Gone, Attempts: failures,
		Backoff: max(r.backoff(failures), result.RetryAfter),
	}
	disabled := ""
	err := r.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		disabled, err = r.store.FailEndpoint(ctx, &r.claim, Progress{Cursor: r.cursor, Delivered: r.delivered}, f)
		return err
	})
	switch {
	case err != nil:
		r.logFailure(ctx, "a failed delivery can't be recorded", err)
	case disabled != "":
		r.log.Error("an endpoint is disabled; sluice endpoint enable resumes it where it stopped",
			"endpoint", r.claim.ID, "reason", disabled, "event", e.ID)
	default:
		r.log.Warn("a delivery failed and will be repeated", "endpoint", r.claim.ID, "event", e.ID, "type", e.Type,
			"attempt", failures, "next_in", f.Backoff, "error", result.Error)
	}
}

func (r *endpointRun) logFailure(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.log.Warn(what, "endpoint", r.claim.ID, "error", err)
	}
}
