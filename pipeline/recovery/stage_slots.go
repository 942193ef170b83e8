package recovery

import (
	"context"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// slotStager writes slots into a key of their own, in chunks, while the next ones are read. The caller of newSlotStager
// must call wait.
type slotStager struct {
	rdb     redis.UniversalClient
	key     string
	pending []any
	staged  int
	writes  errgroup.Group
}

func newSlotStager(rdb redis.UniversalClient, key string) *slotStager {
	s := &slotStager{rdb: rdb, key: key}
	s.writes.SetLimit(rebuildWrites)
	return s
}

func (s *slotStager) take(ctx context.Context, userID string, slot lua.Slot) error {
	return s.takeText(ctx, userID, slot.String())
}

func (s *slotStager) takeText(ctx context.Context, userID, slots string) error {
	s.pending = append(s.pending, userID, slots)
	if len(s.pending) == 2*rebuildChunk {
		s.flush(ctx)
	}
	return ctx.Err()
}

// flush starts a write of what is pending, as soon as fewer than rebuildWrites are under way.
func (s *slotStager) flush(ctx context.Context) {
	slots := s.pending
	s.staged += len(slots) / 2
	s.pending = make([]any, 0, 2*rebuildChunk)
	s.writes.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		defer cancel()
		pipe := s.rdb.Pipeline()
		pipe.HSet(ctx, s.key, slots...)
		pipe.PExpire(ctx, s.key, stagedTTL)
		if _, err := pipe.Exec(ctx); err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take the buyers of a sale")
		}
		return nil
	})
}

// wait writes the rest and returns when every write is done. Its error is the first of all writes.
func (s *slotStager) wait(ctx context.Context) error {
	if len(s.pending) > 0 {
		s.flush(ctx)
	}
	return s.writes.Wait()
}

// slotCounter stages nothing: collect counts, for a dry run.
type slotCounter struct{}

func (slotCounter) take(context.Context, string, lua.Slot) error { return nil }
