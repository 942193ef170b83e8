package webhook

import (
	"context"
	"time"
)

// Times of the outbox. Postgres' clock counts them.
const (
	// KeepDelivered is how long an event is kept that no endpoint waits for, so that an operator can look back.
	KeepDelivered = 24 * time.Hour
	// KeepWaiting is how long an event is kept for endpoints that are behind or disabled. What is dropped then is counted
	// as missed: an endpoint that nobody enables again must not fill the disk.
	KeepWaiting = 7 * 24 * time.Hour
)

// Claim is an endpoint that this process delivers to, until its lease ends.
type Claim struct {
	Endpoint
	Cursor int64  // the position that is delivered or passed
	Lease  string // a UUID that tells this claim from all others
}

// Progress is what a claim's holder has done since it last told.
type Progress struct {
	Cursor    int64         // the position that is delivered or passed now
	Delivered bool          // whether anything was delivered, which ends a row of failures
	Lease     time.Duration // how long the claim shall last from now; 0 gives it up
}

// Failure ends a claim after a delivery that failed.
type Failure struct {
	Error    string
	Gone     bool          // the receiver wants nothing more: disable it at once
	Attempts int           // failures in a row, this one included
	Backoff    time.Duration // until the next attempt
}

// Pruned is what one call dropped from the outbox.
type Pruned struct {
	Events int // dropped
	Missed int // of these, how many some endpoint had not got; counted once for each
}

// Store is the outbox and the endpoints' cursors. Every call is one transaction and may be repeated.
type Store interface {
	// SequenceEvents makes up to limit committed events readable, in the order in which they were committed, and returns
	// how many. 0 also when another process is doing it.
	SequenceEvents(ctx context.Context, limit int) (int, error)
	// ClaimEndpoints claims endpoints that have events to get, are due and not claimed, for so long.
	ClaimEndpoints(ctx context.Context, limit int, lease time.Duration) ([]Claim, error)
	// NextEvents returns up to limit events behind a position, those that the endpoint does not want without data.
	NextEvents(ctx context.Context, after int64, types []string, limit int) ([]Event, error)
	// Advance notes progress. It returns false when the claim is lost, and when the endpoint was disabled or removed.
	Advance(ctx context.Context, c *Claim, p Progress) (bool, error)
	// Fail notes progress and a failure, and gives the claim up. It returns why the endpoint is disabled now, if this did it.
	Fail(ctx context.Context, c *Claim, p Progress, f Failure) (disabled string, err error)
	// PruneEvents drops up to limit events that are no longer kept.
	PruneEvents(ctx context.Context, limit int) (Pruned, error)
	// Endpoints returns all endpoints without their secrets, by id.
	Endpoints(ctx context.Context) ([]Endpoint, error)
}
