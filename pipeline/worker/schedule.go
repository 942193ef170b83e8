package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// jobLoop tries to run the job once per tick, until the context ends. One worker succeeds per tick.
func (w *Worker) jobLoop(ctx context.Context, job pipeline.Job) {
	w.metrics.jobDone(job)
	for {
		retry.Sleep(ctx, job.Every)
		if ctx.Err() != nil {
			return
		}
		ran, err := w.locks.RunOnce(ctx, w.keys.JobLock(job.Name), job.Every, job.Run)
		switch {
		case err != nil && ctx.Err() == nil:
			w.stepFailed(job.Name, err)
		case err == nil && ran:
			w.metrics.jobDone(job)
		}
	}
}
