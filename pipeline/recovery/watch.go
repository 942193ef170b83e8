package recovery

import (
	"context"
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
		states, _, err := v.look(ctx)
		if err != nil {
			return err
		}
		var trusted []pipeline.Partition
		for p, state := range states {
			if state == lua.Trusted {
				trusted = append(trusted, pipeline.Partition(p))
			}
		}
		r := v.newRound("watch")
		behind, err := r.behind(ctx, trusted, false)
		if err != nil || len(behind) == 0 {
			return err
		}
		var lossy []pipeline.Partition
		for p := range behind {
			lossy = append(lossy, p)
		}
		v.Log.Error("Redis has lost something without a restart; its partitions are verified anew",
			"partitions", fmt.Sprint(lossy))
		_, err = v.Store.RunExclusively(ctx, verifyName, func(ctx context.Context) error { return r.verify(ctx, lossy) })
		return err
	}}
}
