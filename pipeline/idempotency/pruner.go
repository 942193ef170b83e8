package idempotency

import (
	"context"
	"time"

	"sluice/pipeline"
)

const (
	pruneEvery = time.Minute
	// pruneBatch is how many keys one statement drops: some 20 ms.
	pruneBatch = 1000
)

// Job drops the keys that were kept for long enough, each minute.
func (s *Service) Job() pipeline.Job {
	return pipeline.Job{Name: "prune-requests", Every: pruneEvery, Run: func(ctx context.Context) error {
		for ctx.Err() == nil {
			if dropped, err := s.store.PruneRequests(ctx, pruneBatch); err != nil || dropped < pruneBatch {
				return err
			}
		}
		return ctx.Err()
	}}
}
