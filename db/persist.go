package db

import (
	"context"
	"maps"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// persistRounds bounds how often events are inserted again whose conflict was gone when it was looked for: each round
// needs another order to be closed, or a sale to be created, within the same millisecond.
const persistRounds = 3

// PersistOrders turns events into orders, each at most once however often it is delivered, and returns what became of
// each event: outcome i belongs to event i. Sold units and watermarks move in the same transaction, and only by what
// was inserted now. It is one round trip, and a second one only when some events did not become rows.
//
// The events were fetched in a generation; once that is over nothing is written.
//
// Errors: KindInvalid for more than pipeline.MaxPersistBatch events; pipeline.ErrStaleGeneration; KindData when
// Postgres refuses a value of some event, for instance units beyond the sale's total: the caller halves the batch to
// find the culprit; KindUnavailable for the rest. A batch that fails is rolled back as a whole, unless it was in a
// second round by then or the reply was lost. Either way repeating it, or parts of it, is safe.
func (s *Store) PersistOrders(
	ctx context.Context, generation pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, error) {
	outcomes, _, err := s.persist(ctx, fencing{generation: generation}, events)
	return outcomes, err
}

// fencing is what a statement that persists joins.
type fencing struct {
	generation pipeline.Generation
	unexamined bool // also on a server that was not examined
}

func (s *Store) persist(
	ctx context.Context, fence fencing, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	if len(events) > pipeline.MaxPersistBatch {
		return nil, nil, pipeline.Errorf(pipeline.KindInvalid, "%d events at once: at most %d are allowed",
			len(events), pipeline.MaxPersistBatch)
	}
	accepts, err := readAccepts(events)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	r := persistResult{make([]pipeline.PersistOutcome, len(events)), map[pipeline.SalePartition]int64{}}
	for range persistRounds {
		if accepts, err = s.persistRound(ctx, fence, accepts, r); err != nil {
			return nil, nil, err
		}
		if len(accepts) == 0 {
			return r.outcomes, r.marks, nil
		}
	}
	return nil, nil, pipeline.Errorf(pipeline.KindUnavailable, "%d orders met conflicts that came and went", len(accepts))
}

// accept is an event with its place in the caller's batch.
type accept struct {
	pipeline.Event
	key   orderKey
	index int
}

type orderKey struct {
	sale  string
	order uuid.UUID
}

func readAccepts(events []pipeline.Event) ([]accept, error) {
	accepts := make([]accept, len(events))
	for i, event := range events {
		id, err := uuid.Parse(event.OrderID)
		if err != nil {
			return nil, pipeline.Wrap(pipeline.KindData, err, "an order id is not a UUID")
		}
		accepts[i] = accept{Event: event, key: orderKey{event.SaleID, id}, index: i}
	}
	return accepts, nil
}

// same reports whether two events stand for one and the same accept.
func (a *accept) same(partition pipeline.Partition, sequence int64) bool {
	return a.Partition == partition && a.Sequence == sequence
}

// persistResult is what became of a batch.
type persistResult struct {
	outcomes []pipeline.PersistOutcome // by the event's place in it
	marks    map[pipeline.SalePartition]int64
}

// persistRound inserts what it can, sets the outcomes, and returns the accepts that must be tried again.
func (s *Store) persistRound(
	ctx context.Context, fence fencing, accepts []accept, r persistResult,
) ([]accept, error) {
	if len(accepts) == 0 {
		return nil, nil
	}
	first := firstOfEach(accepts)
	inserted, err := retryCollisions(ctx, func() (stored, error) {
		return s.insertOrders(ctx, fence, first)
	})
	if err != nil {
		return nil, wrap(err, "persist orders")
	}
	maps.Copy(r.marks, inserted.marks)
	var missing []accept
	for _, a := range accepts {
		if _, ok := inserted.keys[a.key]; !ok {
			missing = append(missing, a)
			continue
		}
		r.outcomes[a.index] = outcomeBeside(first[a.key], a)
	}
	if len(missing) == 0 {
		return nil, nil
	}
	return s.findConflicts(ctx, missing, r)
}

// firstOfEach keeps the first accept of each order: the one that is inserted if it is new.
func firstOfEach(accepts []accept) map[orderKey]accept {
	first := make(map[orderKey]accept, len(accepts))
	for _, a := range accepts {
		if _, ok := first[a.key]; !ok {
			first[a.key] = a
		}
	}
	return first
}
