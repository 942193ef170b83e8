package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/resubmit"
)

// learn remembers a generation, unless the worker knows a newer one.
func (w *Worker) learn(g pipeline.Generation) {
	for {
		known := w.generation.Load()
		if int64(g) <= known || w.generation.CompareAndSwap(known, int64(g)) {
			return
		}
	}
}

// resubmit submits entries of a stale generation to Redis again, which may have lost them. It returns the generation in
// which that was done, and the entries that are finished: lost ones that took their units again have a new event, those
// that could not are rejected, and what was handed to a buyer who has left is nobody's. The rest may be persisted.
func (w *Worker) resubmit(
	ctx context.Context, stale pipeline.Generation, entries []entry,
) (pipeline.Generation, []lockedEvent, error) {
	ctx = context.WithoutCancel(ctx)
	// Before Redis is asked: a verification that begins from here on makes this generation stale, too.
	generation, err := w.fence.Refresh(ctx)
	if err != nil {
		return stale, nil, err
	}
	if err := w.fence.Examined(); err != nil { // what it does not know may be what it has forgotten
		return stale, nil, err
	}
	w.learn(generation)
	events, _ := decode(entries) // what can't be read is buried as usual
	var finished []lockedEvent
	counts := map[resubmit.Standing]int{}
	for at, group := range bySalePartition(events) {
		standings, err := w.resubmitter.Resubmit(ctx, at, group)
		if err != nil {
			w.settle(ctx, finished)
			return stale, finished, err
		}
		for i, s := range standings {
			counts[s]++
			if s == resubmit.Renewed || s == resubmit.Lost || s == resubmit.Left {
				finished = append(finished, lockedEvent{Event: group[i].Event})
			}
		}
	}
	w.settle(ctx, finished)
	w.log.Info("submitted fetched orders to Redis again",
		"events", len(events), "finished", len(finished),
		"renewed", counts[resubmit.Renewed], "lost", counts[resubmit.Lost], "generation", generation)
	return generation, finished, nil
}

func bySalePartition(events []pipeline.Event) map[pipeline.SalePartition][]pipeline.Accept {
	groups := map[pipeline.SalePartition][]pipeline.Accept{}
	for _, e := range events {
		at := pipeline.SalePartition{SaleID: e.SaleID, Partition: e.Partition}
		accept := pipeline.Accept{Event: e, PayloadHash: redisstore.PayloadHash(e.KeyHash, e.Quantity)}
		groups[at] = append(groups[at], accept)
	}
	return groups
}
