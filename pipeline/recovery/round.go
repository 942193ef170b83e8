package recovery

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

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

	generation pipeline.Generation // the one that this round began; Postgres refuses what an older round records

	reports []pipeline.RebuildReport // of what was rebuilt
}

func (v *Verifier) newRound(cause string) *round {
	return &round{Verifier: v, token: uuid.NewString(), actor: "sluice", cause: cause}
}

// verify closes the partitions, ends the generation of what was fetched from them, and compares them with Postgres.
// Those that have lost nothing open at once, the others after they are rebuilt.
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
	behind, err := r.behind(ctx, partitions)
	if err != nil {
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
	if err := r.finish(ctx, clean); err != nil {
		return err
	}
	if len(clean) > 0 {
		r.Log.Info("Redis is verified", "partitions", len(clean), "took", time.Since(began))
	}
	for _, p := range lossy {
		if err := r.rebuildPartition(ctx, p, behind[p]); err != nil {
			return err
		}
	}
	return r.open(ctx, lossy)
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
	r.generation, err = r.Store.NextGeneration(ctx)
	return err
}

// open lets lost accepts come back first, and then opens the partitions for all buyers.
func (r *round) open(ctx context.Context, partitions []pipeline.Partition) error {
	if len(partitions) == 0 {
		return nil
	}
	for _, p := range partitions {
		if err := r.resubmit(ctx, p); err != nil { // repeated once all is open
			r.Log.Warn("lost orders could not be submitted to Redis again yet", "partition", p, "error", err)
		}
	}
	retry.Sleep(ctx, reopenGrace)
	return r.finish(ctx, partitions)
}

// finish opens partitions for all buyers.
func (r *round) finish(ctx context.Context, partitions []pipeline.Partition) error {
	return r.each(ctx, partitions, lua.FinishVerify, lua.Trusted)
}

// each takes one step of the verification on some partitions.
func (r *round) each(ctx context.Context, partitions []pipeline.Partition,
	step func(context.Context, redis.Scripter, lua.VerifyKeys, string) (lua.Trust, error), want lua.Trust,
) error {
	for _, p := range partitions {
		call, cancel := context.WithTimeout(ctx, retry.CommandTimeout)
		got, err := step(call, r.Redis, r.Keys.ForVerify(p, r.id), r.token)
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
