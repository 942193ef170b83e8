package journal

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/retry"
)

// PresenceInterval is the time between two signs of life of a journal in Postgres.
const PresenceInterval = time.Second

// Store is what a journal needs of Postgres.
type Store interface {
	OrderStore
	// ReportOverdue takes the place of what a journal reported before. It does nothing where the journal is not known.
	ReportOverdue(ctx context.Context, o Overdue) error
	// TouchJournals says that journals are in the hands of a living process. A new one is added.
	TouchJournals(ctx context.Context, ids []string, host string) error
	// ForgetJournals removes journals that hold nothing, and their reports.
	ForgetJournals(ctx context.Context, ids []string) error
	// CoverPartitions says that all that journals hold of some partitions was submitted to Redis again since a generation
	// began. It fails where a journal is not known.
	CoverPartitions(ctx context.Context, ids []string, g pipeline.Generation, partitions []pipeline.Partition) error
	// UncoveredPartitions returns those of some partitions for which that was not said of every one of some journals.
	UncoveredPartitions(
		ctx context.Context, ids []string, g pipeline.Generation, partitions []pipeline.Partition,
	) ([]pipeline.Partition, error)
}

// Announce says in Postgres that the journal is there. It comes before the first accept: a verification of Redis waits
// for the journals that it knows of.
func (j *Journal) Announce(ctx context.Context, store Store) error {
	j.presence.Lock()
	defer j.presence.Unlock()
	ids, err := j.ids()
	if err != nil {
		return err
	}
	return store.TouchJournals(ctx, ids, host())
}

// host names this machine, for people only.
func host() string {
	name, _ := os.Hostname()
	return name
}

// Cover says that all of the journal was submitted to Redis again, for some partitions, since a generation began.
// Postgres may have lost the journal's row, when it was restored or promoted: it is announced again first.
func (j *Journal) Cover(
	ctx context.Context, store Store, g pipeline.Generation, partitions []pipeline.Partition,
) error {
	if err := j.Announce(ctx, store); err != nil {
		return err
	}
	ids, err := j.ids()
	if err != nil {
		return err
	}
	return store.CoverPartitions(ctx, ids, g, partitions)
}

// Uncovered returns those of some partitions for which Postgres does not have that.
func (j *Journal) Uncovered(
	ctx context.Context, store Store, g pipeline.Generation, partitions []pipeline.Partition,
) ([]pipeline.Partition, error) {
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	return store.UncoveredPartitions(ctx, ids, g, partitions)
}

// ids names the journals in this process' hands: its own, on disk or in memory only, and those that it took over.
func (j *Journal) ids() ([]string, error) {
	if err := j.lock(); err != nil {
		return nil, err
	}
	defer j.mu.Unlock()
	ids := []string{j.id}
	for _, h := range j.homes {
		if h != j.own {
			ids = append(ids, h.id)
		}
	}
	return ids, nil
}

// Run keeps Postgres informed that the journal is there, and deletes what it has stored, until the context ends. No
// error ends it. Follow it by Leave. It gives no sign of life while able says no: that this process could not submit
// anything to Redis now, so that a verification which waits for it would wait in vain. Nil: it always can.
func (j *Journal) Run(ctx context.Context, store Store, able func() bool) {
	var both sync.WaitGroup
	both.Go(func() {
		j.repeat(ctx, PresenceInterval, "announce the accept journal", func(ctx context.Context) error {
			if able != nil && !able() {
				return nil
			}
			return j.Announce(ctx, store)
		})
	})
	both.Go(func() {
		j.repeat(ctx, trimEvery, "trim the accept journal", func(ctx context.Context) error {
			return errors.Join(j.takeOver(), j.Trim(ctx, store))
		})
	})
	both.Wait()
}

// takeOver takes over the journals of processes that died beside this one, and makes the own directory where it could
// not be made yet. A disk that failed is tried again where no order has done so: the metric must not say that it is
// down until the next sale.
func (j *Journal) takeOver() error {
	if err := j.lock(); err != nil {
		return err
	}
	defer j.mu.Unlock()
	if j.opts.Dir == "" || j.closed {
		return nil
	}
	if err := j.adopt(); err != nil || !j.down || time.Since(j.retryAt) < trimEvery {
		return err
	}
	if err := j.ready(); err != nil {
		j.failed(err)
		return err
	}
	j.works()
	return nil
}

// Leave ends the journal, when no accept comes any more. If its files hold nothing that Postgres does not have, it is
// forgotten there, so that nobody waits for it: what is in memory ends with the process. Otherwise all that it holds is
// reported as overdue: nobody may ever look at this disk again.
func (j *Journal) Leave(ctx context.Context, store Store) error {
	if err := j.lock(); err != nil {
		return err
	}
	if j.file != nil {
		j.endSegment(nil)
	}
	j.mu.Unlock()
	trimErr := j.trim(ctx, store, 0)
	ids, err := j.ids()
	empty := err == nil && trimErr == nil && !j.onDisk()
	if err := j.Close(); err != nil {
		return err
	}
	if !empty {
		return trimErr
	}
	return store.ForgetJournals(ctx, ids)
}

// repeat calls a step at an interval, and logs when it begins to fail.
func (j *Journal) repeat(ctx context.Context, every time.Duration, what string, step func(context.Context) error) {
	failing := false
	for {
		retry.Sleep(ctx, every)
		if ctx.Err() != nil {
			return
		}
		err := step(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			j.opts.Log.Warn("could not "+what+", will be repeated", "error", err)
		}
		failing = err != nil
	}
}

// Unanswered is a journal of which something may not have been submitted to Redis again.
type Unanswered struct {
	ID     string
	Host   string
	Silent time.Duration // since its process gave its last sign of life
}
