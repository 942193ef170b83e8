package worker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// reapDead removes the dead consumers that have nothing pending, so that their names don't pile up.
func (w *Worker) reapDead(ctx context.Context) error {
	for p := range pipeline.Partition(w.opts.Partitions) {
		if err := w.reapPartition(ctx, p); err != nil && !redis.HasErrorPrefix(err, "NOGROUP") {
			return err
		}
	}
	return nil
}

func (w *Worker) reapPartition(ctx context.Context, p pipeline.Partition) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	consumers, err := w.rdb.XInfoConsumers(ctx, w.keys.Orders(p), pipeline.Group).Result()
	if err != nil {
		return err
	}
	for _, c := range consumers {
		if c.Name == w.opts.Name || c.Pending > 0 || c.Idle < heartbeatTTL {
			continue
		}
		result, err := lua.Reap(ctx, w.rdb, w.keys.Orders(p), w.keys.Worker(p, c.Name), pipeline.Group, c.Name)
		if err != nil {
			return err
		}
		if result == lua.ReapRemoved {
			w.log.Info("removed a dead consumer", "partition", p, "consumer", c.Name, "idle", c.Idle.Round(time.Second))
		}
	}
	return nil
}
