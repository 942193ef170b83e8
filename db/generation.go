package db

import (
	"context"

	"sluice/pipeline"
)

// Generation returns the present generation.
func (s *Store) Generation(ctx context.Context) (pipeline.Generation, error) {
	return queryValue[pipeline.Generation](ctx, s, "generation", `select number from generation`)
}

// NextGeneration begins a new generation. It waits for the batches that are being persisted, at most some seconds; when
// it returns, nothing that was fetched before is written any more. Repeating it does no harm.
func (s *Store) NextGeneration(ctx context.Context) (pipeline.Generation, error) {
	return queryValue[pipeline.Generation](ctx, s, "next generation", `select begin_generation()`)
}
