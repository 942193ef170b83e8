package webhook

import (
	"cmp"
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
	keep    time.Duration
	metrics *Metrics
	log     *slog.Logger
}

// NewPruner returns a Pruner of events that no endpoint needs any more and that are older than keep; 0: KeepDelivered.
func NewPruner(store Store, keep time.Duration, m *Metrics, log *slog.Logger) *Pruner {
	return &Pruner{store: store, keep: cmp.Or(keep, KeepDelivered), metrics: m, log: log}
}

// Job prunes each minute.
func (p *Pruner) Job() pipeline.Job {
	return pipeline.Job{Name: "prune-outbox", Every: pruneEvery, Run: p.prune}
}

// prune deletes everything that may go, batch by batch. Errors: KindUnavailable; what was deleted before the error is
// gone.
func (p *Pruner) prune(ctx context.Context) error {
	for ctx.Err() == nil {
		pruned, err := p.store.PruneEvents(ctx, p.keep, pruneBatch)
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
