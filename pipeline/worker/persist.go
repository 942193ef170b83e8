package worker

import (
	"context"

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
	outcomes, marks, err := w.store.PersistMarked(ctx, generation, events)
	switch {
	case err == nil:
		return w.classify(locked, outcomes, marks), nil
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
