package resubmit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// JournalStore is what a Journaled needs of Postgres.
type JournalStore interface {
	Store
	journal.Store
}

// Journaled submits what the accept journal of this process holds to Redis again.
type Journaled struct {
	resubmitter *Resubmitter
	journal     *journal.Journal
	store       JournalStore
	settle      func(pipeline.Partition)
}

// NewJournaled returns a Journaled. settle returns when the accepts on a partition that are being answered are in the
// journal.
func NewJournaled(r *Resubmitter, j *journal.Journal, store JournalStore, settle func(pipeline.Partition)) *Journaled {
	return &Journaled{resubmitter: r, journal: j, store: store, settle: settle}
}

// Resubmit submits all accepts of some partitions again, in one pass over the journal. It returns the partitions of
// which all were submitted: one that can't be keeps back no other. Repeating it is harmless. Errors: KindNotLoaded,
// where Redis is not verified yet, or has not loaded a sale that is not over; KindUnavailable.
func (j *Journaled) Resubmit(ctx context.Context, partitions []pipeline.Partition) ([]pipeline.Partition, error) {
	for _, p := range partitions {
		j.settle(p)
	}
	counts := map[Standing]int{}
	failed := map[pipeline.Partition]error{}
	err := journal.InChunks(func(each func(pipeline.SalePartition, []pipeline.Accept) error) error {
		return j.journal.Each(ctx, partitions, each)
	}, func(at pipeline.SalePartition, accepts []pipeline.Accept) error {
		if err := j.submit(ctx, at, accepts, counts); err != nil && failed[at.Partition] == nil {
			failed[at.Partition] = err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(counts) > 0 {
		j.resubmitter.log.Info("submitted accepted orders to Redis again", "partitions", len(partitions),
			"known", counts[Known], "held", counts[Held], "renewed", counts[Renewed], "lost", counts[Lost])
	}
	done := slices.DeleteFunc(slices.Clone(partitions), func(p pipeline.Partition) bool { return failed[p] != nil })
	return done, errors.Join(slices.Collect(maps.Values(failed))...)
}

func (j *Journaled) submit(
	ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept, counts map[Standing]int,
) error {
	standings, err := j.resubmitter.Resubmit(ctx, at, accepts)
	if err != nil {
		return err
	}
	var unloaded []pipeline.Accept
	for i, s := range standings {
		counts[s]++
		if s == Unloaded {
			unloaded = append(unloaded, accepts[i])
		}
	}
	if len(unloaded) == 0 {
		return nil
	}
	return j.unloaded(ctx, at, unloaded)
}

// unloaded decides about accepts of a sale that Redis does not have. Where it is over they can't stand any more, which
// their buyers must be able to see; otherwise it has yet to be loaded, and they with it.
func (j *Journaled) unloaded(ctx context.Context, at pipeline.SalePartition, accepts []pipeline.Accept) error {
	sale, err := j.store.Sale(ctx, at.SaleID)
	known := pipeline.KindOf(err) != pipeline.KindNotFound
	if err != nil && known {
		return err
	}
	if known && time.Now().Before(sale.ClosesAt) {
		return pipeline.Errorf(pipeline.KindNotLoaded, "Redis has not loaded sale %s yet", at.SaleID)
	}
	for i := range accepts {
		err := j.resubmitter.burier.BuryLost(ctx, &accepts[i].Event, "lost:"+accepts[i].OrderID,
			"Redis lost the order after it was accepted, and the sale was over before it could be submitted again")
		if err != nil {
			return err
		}
	}
	return nil
}

// Uncovered returns those of some partitions of which Postgres does not say that all of the journal was submitted again
// since a generation began.
func (j *Journaled) Uncovered(
	ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition,
) ([]pipeline.Partition, error) {
	return j.journal.Uncovered(ctx, j.store, g, partitions)
}

// Cover says in Postgres that this was done for some partitions.
func (j *Journaled) Cover(ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition) error {
	return j.journal.Cover(ctx, j.store, g, partitions)
}

// TookOver reports whether accepts of a process that died came into the journal since the last call.
func (j *Journaled) TookOver() bool { return j.journal.TookOver() }
