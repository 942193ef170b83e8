package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/retry"
)

// round is one verification of some partitions, under one token.
type round struct {
	*Verifier
	token string
	actor string
	cause string
	found *audit.Report // the audit that a repair is based on; nil in every other verification

	// generation is the one that this round began; Postgres refuses what an older round records.
	generation pipeline.Generation
	// tookOver are, where there is none, those of the rounds that this one goes on for.
	tookOver map[pipeline.Partition]pipeline.Generation

	reports []pipeline.RebuildReport // of what was rebuilt
}

func (v *Verifier) newRound(cause string) *round {
	return &round{Verifier: v, token: uuid.NewString(), actor: "sluice", cause: cause}
}

// verify closes the partitions, ends the generation of what was fetched from them, and compares them with Postgres.
// Those that are behind nothing open once every accept journal is covered, the others after they are rebuilt.
func (r *round) verify(ctx context.Context, partitions []pipeline.Partition) error {
	if len(partitions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	began := time.Now()
	if err := r.begin(ctx, partitions); err != nil {
		return err
	}
	behind, err := r.behind(ctx, partitions, true)
	if err != nil {
		return err
	}
	if err := r.addMoved(ctx, partitions, behind); err != nil {
		return err
	}
	var clean, lossy []pipeline.Partition
	for _, p := range partitions {
		if len(behind[p]) == 0 {
			clean = append(clean, p)
		} else {
			lossy = append(lossy, p)
		}
	}
	// Both at once: a partition that is behind nothing that Postgres knows of does not wait for the rebuild of another.
	var reopening errgroup.Group
	reopening.Go(func() error {
		err := r.each(ctx, clean, lua.Reopen, lua.Reopening)
		if err == nil {
			err = r.reopen(ctx, clean, 0)
		}
		if err == nil && len(clean) > 0 {
			r.Log.Info("Redis is verified", "partitions", len(clean), "took", time.Since(began))
		}
		return err
	})
	err = r.rebuildAll(ctx, lossy, behind)
	return errors.Join(err, reopening.Wait())
}

// takeOver goes on where a verifier died that had made partitions ready to be reopened.
func (r *round) takeOver(ctx context.Context, partitions []pipeline.Partition) error {
	r.tookOver = make(map[pipeline.Partition]pipeline.Generation, len(partitions))
	for _, p := range partitions {
		r.tookOver[p] = r.Fence.Generation(p) // as it is now: one that begins elsewhere from here on is not this one
	}
	if err := r.each(ctx, partitions, lua.Reopen, lua.Reopening); err != nil {
		return err
	}
	return r.reopen(ctx, partitions, reopenGrace)
}

// rebuildAll rebuilds partitions and opens them.
func (r *round) rebuildAll(
	ctx context.Context, lossy []pipeline.Partition, behind map[pipeline.Partition][]loss,
) error {
	for _, p := range lossy {
		if err := r.rebuildPartition(ctx, p, behind[p]); err != nil {
			return err
		}
	}
	return r.reopen(ctx, lossy, reopenGrace)
}

// begin closes the partitions and ends the generation: batches that were fetched before can't be persisted any more,
// and those that were persisted are in Postgres before anything is read from it.
func (r *round) begin(ctx context.Context, partitions []pipeline.Partition) (err error) {
	if err := r.readInstallation(ctx); err != nil { // an operator's rebuild has not looked yet
		return err
	}
	if err := r.each(ctx, partitions, lua.BeginVerify, lua.Verifying); err != nil {
		return err
	}
	r.generation, err = r.Store.NextGeneration(ctx, partitions)
	return err
}

// finish opens partitions for all buyers.
func (r *round) finish(ctx context.Context, partitions []pipeline.Partition) error {
	return r.each(ctx, partitions, lua.FinishVerify, lua.Trusted)
}

// begun is the generation in which the verification of a partition began that this round is, or takes over.
func (r *round) begun(p pipeline.Partition) pipeline.Generation {
	if r.generation != 0 {
		return r.generation
	}
	return r.tookOver[p]
}

// each takes one step of the verification on some partitions.
func (r *round) each(ctx context.Context, partitions []pipeline.Partition,
	step func(context.Context, redis.Scripter, lua.VerifyKeys, string) (lua.Trust, error), want lua.Trust,
) error {
	for _, p := range partitions {
		call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		keys := r.Keys.ForVerify(p, r.id)
		keys.Verified = int64(r.begun(p))
		got, err := step(call, r.Redis, keys, r.token)
		cancel()
		if err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not take a step of its verification")
		}
		if got == lua.Foreign {
			return r.foreign(ctx, p)
		}
		if got != want {
			return errOvertaken(p)
		}
	}
	return nil
}
