package pipeline

import (
	"context"
	"time"
)

// Job is a duty that every worker schedules and one of them does per tick. It must be safe to run twice at once: a lock
// elects, it does not guarantee.
type Job struct {
	Name  string
	Every time.Duration
	Run   func(ctx context.Context) error
}

// Uninterrupted is the context of a step that, once begun, is finished and counted, even if the job's tick or the
// worker ends in the middle of it: a transaction that is cut off may have been committed, and its result would go
// uncounted and unpublished. And a step that takes longer than the rest of a tick would be cut off in every tick, for
// ever. A step has deadlines of its own, of some seconds at most; between its steps the job checks whether its time is
// over.
func Uninterrupted(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
