package webhook

import (
	"context"
	"time"
)

// Retention of the outbox, by Postgres' clock.
const (
	// KeepDelivered is how long an event is kept that no endpoint needs any more, unless it is set otherwise, so that an
	// operator can look back, and have it sent again to a receiver that lost its data.
	KeepDelivered = 7 * 24 * time.Hour
	// KeepWaiting is how long an event is kept for endpoints that are behind or disabled. An event that is dropped then
	// is counted as missed: an endpoint that is never enabled again must not fill the disk.
	KeepWaiting = 14 * 24 * time.Hour
)

// Claim is the right of this process to deliver to an endpoint, until the lease ends.
type Claim struct {
	Endpoint
	Cursor int64  // the position that is delivered or passed
	Lease  string // a UUID that identifies this claim
}

// Progress is what a claim's owner has done since it last saved.
type Progress struct {
	Cursor    int64         // the position that is delivered or passed now
	Delivered bool          // whether anything was delivered, which ends a series of failures
	Lease     time.Duration // how long the claim lasts from now; 0 gives it up
}

// Failure ends a claim after a failed delivery.
type Failure struct {
	Error    string
	Gone     bool          // the receiver wants no more events: disable it at once
	Ours     bool          // it says nothing about the receiver, and ends a series of failures: Attempts is 0
	Attempts int           // failures in a row, this one included
	Backoff  time.Duration // until the next attempt
}

// ResendFailure is what follows when an event could not be delivered once more.
type ResendFailure struct {
	Backoff time.Duration // until the next attempt
	Pause   time.Duration // until the endpoint gets another one of those to be resent
}

// Pruned is what one call deleted from the outbox.
type Pruned struct {
	Events int // deleted
	Missed int // of these, deliveries that never happened; counted for each endpoint
}

// Store is the outbox and the endpoints' cursors. Every call is one transaction and may be repeated.
type Store interface {
	// SequenceEvents makes up to limit committed events readable, in the order in which they were committed, and
	// returns how many. It also returns 0 when another process is doing it.
	SequenceEvents(ctx context.Context, limit int) (int, error)
	// ClaimEndpoints claims endpoints that have pending events, are due and not claimed, for the length of the lease.
	ClaimEndpoints(ctx context.Context, limit int, lease time.Duration) ([]Claim, error)
	// NextEvents returns up to limit events after a position; those that the endpoint does not want have no data.
	NextEvents(ctx context.Context, after int64, types []string, limit int) ([]Event, error)
	// Advance saves progress. It returns false when the claim is lost, or the endpoint was disabled or removed.
	AdvanceEndpoint(ctx context.Context, c *Claim, p Progress) (bool, error)
	// Fail saves progress and a failure, and gives the claim up. It returns why the endpoint is disabled now, if this
	// call did it.
	FailEndpoint(ctx context.Context, c *Claim, p Progress, f Failure) (disabled string, err error)
	// NextResends returns up to limit events that an endpoint is to get once more and that are due.
	NextResends(ctx context.Context, endpointID int64, limit int) ([]Resend, error)
	// MarkResent records that one of them has arrived.
	MarkResent(ctx context.Context, endpointID int64, r *Resend) error
	// FailResend records that one of them could not be delivered. It returns true when it is given up.
	FailResend(ctx context.Context, endpointID int64, r *Resend, f ResendFailure) (givenUp bool, err error)
	// PruneEvents deletes up to limit events that need not be kept.
	PruneEvents(ctx context.Context, keep time.Duration, limit int) (Pruned, error)
	// Endpoints returns all endpoints without their secrets, by id.
	Endpoints(ctx context.Context) ([]Endpoint, error)
}
