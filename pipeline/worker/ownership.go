package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// checkOwner checks that the partitions of some entries belong to our installation: another one's orders are neither persisted here,
// nor buried, nor acknowledged. It costs a round trip for each batch.
func (w *Worker) checkOwner(ctx context.Context, entries []Entry) error {
	seen := map[pipeline.Partition]struct{}{}
	var partitions []pipeline.Partition
	for _, e := range entries {
		if _, ok := seen[e.Partition]; !ok {
			seen[e.Partition] = struct{}{}
			partitions = append(partitions, e.Partition)
		}
	}
	return w.checkOwners(ctx, partitions)
}

// mayFetch reports whether a worker may fetch: one that was given another installation's events fetches no more of them until
// Redis belongs to its own again.
func (w *Worker) mayFetch(ctx context.Context, partitions []pipeline.Partition) bool {
	if !w.foreign.Load() {
		return true
	}
	if err := w.checkOwners(ctx, partitions); err != nil {
		return false
	}
	w.foreign.Store(false)
	w.log.Info("Redis belongs to this installation again")
	return true
}

func (w *Worker) checkOwners(ctx context.Context, partitions []pipeline.Partition) error {
	id := w.installation.Load()
	if id == nil {
		asked, err := w.store.Installation(ctx)
		if err != nil {
			return err
		}
		id = &asked
		w.installation.Store(id)
	}
	return installation.CheckOwners(ctx, w.rdb, w.keys, partitions, *id)
}
