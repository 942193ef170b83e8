package worker

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/installation"
)

// checkOwners checks that partitions belong to the worker's installation, and that their server was not replaced:
// another one's orders are neither persisted here, nor buried, nor acknowledged. It costs a round trip for each batch.
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
	return installation.CheckServers(ctx, w.rdb, w.keys, partitions, *id, w.fence)
}
