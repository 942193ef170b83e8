package worker

import (
	"context"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/notification"
)

// outcome is that of a batch: the events whose orders are in Postgres, and those that can never become orders that
// stand.
type outcome struct {
	done    []lockedEvent
	refused []refusedEvent
}

func (o outcome) and(p outcome) outcome {
	return outcome{append(o.done, p.done...), append(o.refused, p.refused...)}
}

// classify separates the events whose orders stand from those that conflict with what is in Postgres.
func (w *Worker) classify(
	locked []lockedEvent, outcomes []pipeline.PersistOutcome, marks map[pipeline.SalePartition]int64,
) outcome {
	w.metrics.persistBatch.Observe(float64(len(locked)))
	now := time.Now()
	o := outcome{done: make([]lockedEvent, 0, len(locked))}
	for i, l := range locked {
		w.metrics.persisted.WithLabelValues(string(outcomes[i])).Inc()
		l.stored = marks[pipeline.SalePartition{SaleID: l.SaleID, Partition: l.Partition}]
		switch outcomes[i] {
		case pipeline.PersistInserted:
			w.metrics.persistDelay.Observe(now.Sub(l.AcceptedAt).Seconds())
			o.done = append(o.done, l)
		case pipeline.PersistRedelivered:
			o.done = append(o.done, l)
		default:
			o.refused = append(o.refused, refusedEvent{lockedEvent: l, reason: string(outcomes[i])})
		}
	}
	return o
}

// finish settles the events whose orders are in Postgres and publishes the changes, both at once: neither waits for the
// other.
func (w *Worker) finish(ctx context.Context, done []lockedEvent) {
	var publishing sync.WaitGroup
	publishing.Go(func() { w.notifier.Publish(ctx, changedBy(done)) })
	w.settle(ctx, done)
	publishing.Wait()
}

func changedBy(done []lockedEvent) []notification.Change {
	changed := make([]notification.Change, 0, len(done))
	for _, l := range done {
		if l.OrderID != "" { // empty where the entry could not be read
			changed = append(changed, notification.Change{Partition: l.Partition, SaleID: l.SaleID, OrderID: l.OrderID})
		}
	}
	return changed
}
