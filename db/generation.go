package db

import (
	"context"

	"sluice/pipeline"
)

// Generation returns the present one.
func (s *Store) Generation(ctx context.Context) (pipeline.Generation, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var number pipeline.Generation
	err := s.pool.QueryRow(ctx, `select number from generation`).Scan(&number)
	return number, wrap(err, "generation")
}

// NextGeneration begins a new generation. It waits for the batches that are being persisted, at most some seconds; when it
// returns, nothing that was fetched before is written any more. Repeating it does no harm.
func (s *Store) NextGeneration(ctx context.Context) (pipeline.Generation, error) {
	ctx, cancel := deadline(ctx, callTimeout)
	defer cancel()
	var number pipeline.Generation
	err := s.pool.QueryRow(ctx, `select begin_generation()`).Scan(&number)
	return number, wrap(err, "next generation")
}
