package worker

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// persist writes events in one transaction and tells what became of them. A refused batch is halved until the
// event to blame stands alone, so that no event suffers for its neighbours. An error means that the rest was not tried
// or its fate is unknown.
func (w *Worker) persist(ctx context.Context, generation pipeline.Generation, locked []lockedEvent) (sorted, error) {
	if len(locked) == 0 {
		return sorted{}, nil
	}
	events := make([]pipeline.Event, len(locked))
	for i, l := range locked {
		events[i] = l.Event
	}
	outcomes, err := w.store.PersistOrders(ctx, generation, events)
	switch {
	case err == nil:
		return w.sortOut(locked, outcomes), nil
	case pipeline.KindOf(err) != pipeline.KindData:
		return sorted{}, err
	case len(locked) == 1:
		return sorted{refused: []refusedEvent{{lockedEvent: locked[0], reason: deadletter.Refused, cause: err}}}, nil
	}
	half := len(locked) / 2
	first, err := w.persist(ctx, generation, locked[:half])
	if err != nil {
		return first, err
	}
	second, err := w.persist(ctx, generation, locked[half:])
	return first.and(second), err
}

// sorted is what became of a batch: orders that Postgres holds, and events that it will never hold as orders that stand.
type sorted struct {
	done    []lockedEvent
	refused []refusedEvent
}

func (s sorted) and(t sorted) sorted {
	return sorted{append(s.done, t.done...), append(s.refused, t.refused...)}
}

// sortOut separates what Postgres holds from what can't stand beside what it holds.
func (w *Worker) sortOut(locked []lockedEvent, outcomes []pipeline.PersistOutcome) sorted {
	w.metrics.persistBatch.Observe(float64(len(locked)))
	now := time.Now()
	s := sorted{done: make([]lockedEvent, 0, len(locked))}
	for i, l := range locked {
		w.metrics.persisted.WithLabelValues(string(outcomes[i])).Inc()
		switch outcomes[i] {
		case pipeline.PersistInserted:
			w.metrics.persistDelay.Observe(now.Sub(l.AcceptedAt).Seconds())
			s.done = append(s.done, l)
		case pipeline.PersistRedelivered:
			s.done = append(s.done, l)
		default:
			s.refused = append(s.refused, refusedEvent{lockedEvent: l, reason: string(outcomes[i])})
		}
	}
	return s
}
