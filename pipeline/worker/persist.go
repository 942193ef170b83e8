package worker

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// persist writes events in one transaction and returns their outcomes. A refused batch is halved until the refused
// event is alone, so that no event fails for its neighbours. An error means that the rest was not tried or its outcome
// is unknown.
func (w *Worker) persist(ctx context.Context, generation pipeline.Generation, locked []lockedEvent) (outcome, error) {
	if len(locked) == 0 {
		return outcome{}, nil
	}
	events := make([]pipeline.Event, len(locked))
	for i, l := range locked {
		events[i] = l.Event
	}
	outcomes, err := w.store.PersistOrders(ctx, generation, events)
	switch {
	case err == nil:
		return w.classify(locked, outcomes), nil
	case pipeline.KindOf(err) != pipeline.KindData:
		return outcome{}, err
	case len(locked) == 1:
		return outcome{refused: []refusedEvent{{lockedEvent: locked[0], reason: deadletter.Refused, cause: err}}}, nil
	}
	half := len(locked) / 2
	first, err := w.persist(ctx, generation, locked[:half])
	if err != nil {
		return first, err
	}
	second, err := w.persist(ctx, generation, locked[half:])
	return first.and(second), err
}

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
func (w *Worker) classify(locked []lockedEvent, outcomes []pipeline.PersistOutcome) outcome {
	w.metrics.persistBatch.Observe(float64(len(locked)))
	now := time.Now()
	o := outcome{done: make([]lockedEvent, 0, len(locked))}
	for i, l := range locked {
		w.metrics.persisted.WithLabelValues(string(outcomes[i])).Inc()
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
