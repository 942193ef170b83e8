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

// jobLoop tries for the job's tick, until the context ends.
func (w *Worker) jobLoop(ctx context.Context, job Job) {
	for {
		sleep(ctx, job.Every)
		if ctx.Err() != nil {
			return
		}
		if _, err := w.locks.RunOnce(ctx, w.keys.JobLock(job.Name), job.Every, job.Run); err != nil && ctx.Err() == nil {
			w.troubled(job.Name, err)
		}
	}
}
