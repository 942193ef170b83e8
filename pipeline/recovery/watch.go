package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// watchEvery is how often the counters of a trusted Redis are compared with Postgres.
const watchEvery = 2 * time.Second

// Job compares the counters of a trusted Redis with Postgres and rebuilds what is behind: a sale that was deleted, or
// an older state that was restored into the same server process.
func (v *Verifier) Job() pipeline.Job {
	return pipeline.Job{Name: "watch", Every: watchEvery, Run: func(ctx context.Context) error {
		s, err := v.look(ctx)
		if err != nil {
			return err
		}
		var trusted []pipeline.Partition
		for p, state := range s.states {
			if state == lua.Trusted {
				trusted = append(trusted, pipeline.Partition(p))
			}
		}
		ledgerErr := v.watchLedger(ctx) // of a server that is away, maybe, which holds the look at others not up
		r := v.newRound("watch")
		behind, err := r.behind(ctx, trusted, false)
		if err != nil || len(behind) == 0 {
			return errors.Join(ledgerErr, err)
		}
		var lossy []pipeline.Partition
		for p := range behind {
			lossy = append(lossy, p)
		}
		v.Log.Error("Redis has lost something without a restart; its partitions are verified anew",
			"partitions", fmt.Sprint(lossy))
		_, err = v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error { return r.verify(ctx, lossy) })
		return errors.Join(ledgerErr, err)
	}}
}

// watchLedger finds out that Postgres went back without a restart, while what it stores since does not hide it.
func (v *Verifier) watchLedger(ctx context.Context) error {
	if v.Ledger == nil {
		return nil
	}
	forgot, err := v.forgot(ctx, stored)
	if err != nil || !forgot {
		return err
	}
	_, err = v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error {
		identity, err := v.Ledger.ServerIdentity(ctx)
		if err != nil {
			return err
		}
		if forgot, err := v.forgot(ctx, stored); err != nil || !forgot { // another process has stored it meanwhile
			return err
		}
		return v.bringHome(ctx, identity)
	})
	return err
}
