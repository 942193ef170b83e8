package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// mayFetch reports whether the worker may fetch. Once it was given events of another installation it fetches no more
// until Redis belongs to its own installation again.
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

// checkOwners checks that partitions belong to the worker's installation: another one's orders are neither persisted
// here, nor buried, nor acknowledged. It costs a round trip for each batch.
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
