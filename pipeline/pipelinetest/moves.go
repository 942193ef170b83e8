package pipelinetest

import (
	"github.com/redis/go-redis/v9"

	"sluice/pipeline/moves"
)

// Mover moves units between the partitions of a sale.
func (r *Rig) Mover(rdb redis.UniversalClient, store moves.Store) *moves.Mover {
	return moves.New(moves.Config{
		Redis: rdb, Keys: r.Keys, Store: store, Fence: r.Fence, HandOvers: r.HandOvers(), Metrics: r.Metrics.Moves,
		Log: r.Logger,
	})
}
