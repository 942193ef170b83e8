package worker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// observe refreshes the metrics of the streams: one round trip for all partitions, and two for the workers.
func (w *Worker) observe(ctx context.Context, pending map[pipeline.Partition]*redis.XPending) error {
	ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
	defer cancel()
	oldest := time.Duration(0)
	for p, summary := range pending {
		w.metrics.streamPending.WithLabelValues(p.String()).Set(float64(summary.Count))
		if summary.Count > 0 {
			oldest = max(oldest, time.Since(entryTime(summary.Lower)))
		}
	}
	w.metrics.oldestPending.WithLabelValues().Set(oldest.Seconds())
	if err := w.observeLag(ctx); err != nil {
		return err
	}
	return w.observeWorkers(ctx)
}

func (w *Worker) observeLag(ctx context.Context) error {
	pipe := w.rdb.Pipeline()
	asked := make([]*redis.XInfoGroupsCmd, w.opts.Partitions)
	for p := range pipeline.Partition(w.opts.Partitions) {
		asked[p] = pipe.XInfoGroups(ctx, w.keys.Orders(p))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for p, cmd := range asked {
		for _, group := range cmd.Val() {
			if group.Name == pipeline.Group {
				w.metrics.streamLag.WithLabelValues(pipeline.Partition(p).String()).Set(float64(group.Lag))
			}
		}
	}
	return nil
}

// observeWorkers counts the workers that live. Every worker reads every partition, so the first partition has all of
// them.
func (w *Worker) observeWorkers(ctx context.Context) error {
	consumers, err := w.rdb.XInfoConsumers(ctx, w.keys.Orders(0), pipeline.Group).Result()
	if err != nil || len(consumers) == 0 {
		return err
	}
	beats := make([]string, len(consumers))
	for i, c := range consumers {
		beats[i] = w.keys.Worker(0, c.Name)
	}
	alive, err := w.rdb.Exists(ctx, beats...).Result()
	if err != nil {
		return err
	}
	w.metrics.SetAlive(int(alive))
	return nil
}
