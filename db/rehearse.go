package db

import (
	"context"
	"errors"

	"sluice/pipeline"
)

// Rehearse runs the statement that persists orders without an order, in a generation that never was: Postgres checks
// the rights on every table that it writes to, and that it may write at all, and changes nothing. Errors:
// KindUnavailable.
func (s *Store) Rehearse(ctx context.Context) error {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	_, err := s.insertOrders(ctx, fencing{generation: -1}, nil)
	if errors.Is(err, pipeline.ErrStaleGeneration) {
		return nil
	}
	return wrap(err, "rehearse to persist orders")
}
