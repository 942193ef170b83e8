package worker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// heartbeatLoop shows the other workers that this one lives, until the context ends.
func (w *Worker) heartbeatLoop(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.beat(ctx); err != nil && ctx.Err() == nil {
			w.stepFailed("heartbeat", err)
		}
	}
}

// beat sets the heartbeat of every partition in one round trip. A Redis that is out of memory refuses SET but not
// PEXPIRE, so each key is extended first.
func (w *Worker) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	pipe := w.rdb.Pipeline()
	for p := range pipeline.Partition(w.opts.Partitions) {
		key := w.keys.Worker(p, w.opts.Name)
		pipe.PExpire(ctx, key, heartbeatTTL)
		pipe.Set(ctx, key, w.started.UTC().Format(time.RFC3339Nano), heartbeatTTL)
	}
	_, err := pipe.Exec(ctx)
	if redis.IsOOMError(err) {
		return nil
	}
	return err
}
