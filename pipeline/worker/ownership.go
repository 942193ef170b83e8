package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

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
