package pipeline

import "context"

// current is the newest generation that this worker heard of. It may be over by now; Postgres tells when something is
// persisted.
func (w *Worker) current() Generation { return Generation(w.generation.Load()) }

// hear notes a generation.
func (w *Worker) hear(g Generation) {
	for {
		known := w.generation.Load()
		if int64(g) <= known || w.generation.CompareAndSwap(known, int64(g)) {
			return
		}
	}
}

// showAgain shows entries of a stale generation to Redis, which may have lost them. It returns the generation in which that
// was done, and the entries that are finished: lost ones which took their units again travel in an event of their own, and
// those that could not are rejected. The rest may be persisted.
func (w *Worker) showAgain(ctx context.Context, stale Generation, entries []Entry) (Generation, []lockedEvent, error) {
	ctx = context.WithoutCancel(ctx)
	generation, err := w.store.Generation(ctx) // before Redis is asked: a verification that begins now makes it stale again
	if err != nil {
		return stale, nil, err
	}
	w.hear(generation)
	events, _ := decode(entries) // what can't be read is buried as ever
	var finished []lockedEvent
	for key, group := range bySaleAndPartition(events) {
		stands, err := w.again.readmit(ctx, key.partition, key.sale, group)
		if err != nil {
			w.settle(ctx, finished)
			return stale, finished, err
		}
		for i, s := range stands {
			if s == standsRenewed || s == standsLost {
				finished = append(finished, lockedEvent{Event: group[i].Event})
			}
		}
	}
	w.settle(ctx, finished)
	w.log.Info("showed fetched orders to Redis again", "events", len(events), "finished", len(finished), "generation", generation)
	return generation, finished, nil
}

func bySaleAndPartition(events []Event) map[gateID][]told {
	groups := map[gateID][]told{}
	for _, e := range events {
		id := gateID{e.SaleID, e.Partition}
		groups[id] = append(groups[id], told{Event: e})
	}
	return groups
}
