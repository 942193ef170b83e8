package webhook

import (
	"context"
	"log/slog"
	"time"

	"sluice/pipeline"
)

const (
	pruneEvery = time.Minute
	// pruneBatch is how many events one transaction deletes: some 20 ms.
	pruneBatch = 2000
)

// Pruner deletes events that need not be kept any longer.
type Pruner struct {
	store   Store
	metrics *Metrics
	log     *slog.Logger
}

// NewPruner returns a Pruner over a store.
func NewPruner(store Store, m *Metrics, log *slog.Logger) *Pruner {
	return &Pruner{store: store, metrics: m, log: log}
}

// Job prunes each minute.
func (p *Pruner) Job() pipeline.Job {
	return pipeline.Job{Name: "prune-outbox", Every: pruneEvery, Run: p.prune}
}

// prune deletes everything that may go, batch by batch. Errors: KindUnavailable; what was deleted before the error is
// gone.
func (p *Pruner) prune(ctx context.Context) error {
	for ctx.Err() == nil {
		pruned, err := p.store.PruneEvents(ctx, pruneBatch)
		if err != nil {
			return err
		}
		if pruned.Missed > 0 {
			p.metrics.missed.Add(float64(pruned.Missed))
			p.log.Error("events were dropped before endpoints got them; sluice endpoint ls shows whose",
				"events", pruned.Missed, "kept", KeepWaiting)
		}
		if pruned.Events < pruneBatch {
			return nil
		}
	}
	return ctx.Err()
}
