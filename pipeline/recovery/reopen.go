package recovery

import (
	"context"
	"time"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/journal"
	"sluice/pipeline/retry"
)

const (
	// silentAfter is how old the last sign of life of a journal's process may be: two may be lost.
	silentAfter = 3 * journal.PresenceInterval
	// silentLimit bounds the wait for journals whose processes give no sign of life: enough for one that is just being
	// restarted, and for the first sign of life after Postgres was away. Their accepts are submitted again as soon as
	// their processes, or others on the same disk, come back; by then another buyer may have the units.
	silentLimit = 4 * time.Second
	// coverLimit bounds the wait for journals whose processes live and reach Redis: enough for a million accepts, of which
	// two processes submitted 4,000 a second on a machine that was busy with other work.
	coverLimit = 5 * time.Minute
	// coverPoll is the time between two looks at what is covered.
	coverPoll = 50 * time.Millisecond
)

// reopen opens partitions for all buyers, once what their apis were answered is in Redis again: lost accepts come
// first. The grace is for what only workers know. Postgres knows less than the apis: also where Redis is behind nothing
// that Postgres has, it may have lost what no worker had persisted.
func (r *round) reopen(ctx context.Context, partitions []pipeline.Partition, grace time.Duration) error {
	if len(partitions) == 0 {
		return nil
	}
	generation := r.generation
	if generation == 0 { // the round that closed them has died
		var err error
		if generation, err = r.Fence.Refresh(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := r.awaitJournals(ctx, generation, partitions); err != nil {
		return err
	}
	retry.Sleep(ctx, grace-time.Since(began))
	if ctx.Err() != nil { // the lease may be another one's by now
		return ctx.Err()
	}
	return r.finish(ctx, partitions)
}

// awaitJournals waits until every accept journal is covered, within the limits above, and only while the partitions are
// open for lost accepts: no api can cover its journal on a server that has lost them again, or that has taken the place
// of this one. It fails then, and a verification of what is there now begins.
func (r *round) awaitJournals(ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition) error {
	pause := retry.NewBackoff()
	looked := time.Now()
	for began := time.Now(); ; {
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			if err := r.stillReopening(ctx, partitions); err != nil {
				return err
			}
		}
		// This process' own journal first: its verifier is busy with this round.
		if left, err := r.cover(ctx, g, partitions); err != nil {
			r.Log.Warn("lost orders could not be submitted to Redis again yet", "partitions", len(left), "error", err)
			pause.Wait(ctx)
		}
		uncovered, err := r.Store.UncoveredJournals(ctx, g, partitions)
		if err != nil {
			return err
		}
		waited, wait := time.Since(began), false
		for _, j := range uncovered {
			wait = wait || waited < silentLimit || j.Silent < silentAfter && waited < coverLimit
		}
		if !wait {
			for _, j := range uncovered {
				r.Metrics.uncovered.Inc()
				r.Log.Error("an accept journal did not answer in time; its orders are submitted again when its process comes back, "+
					"or by `sluice journal replay`, and may find their units sold",
					"journal", j.ID, "host", j.Host, "silent", j.Silent, "waited", waited)
			}
			return nil
		}
		retry.Sleep(ctx, coverPoll)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// stillReopening fails when one of the partitions is not open for lost accepts any more. A look that fails says
// nothing.
func (r *round) stillReopening(ctx context.Context, partitions []pipeline.Partition) error {
	s, err := r.look(ctx)
	if err != nil {
		if installation.IsForeign(err) {
			return err
		}
		return nil
	}
	for _, p := range partitions {
		if s.states[p] != lua.Reopening && s.states[p] != unreached {
			return errOvertaken(p)
		}
	}
	return nil
}
