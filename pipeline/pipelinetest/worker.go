package pipelinetest

import (
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/worker"
)

// Letters counts the dead letters by reason.
func (r *Rig) Letters() map[string]int {
	r.Helper()
	rows, err := r.SQL.Query(r.Ctx(), `select reason, count(*)::int from dead_letters group by reason`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var reason string
		var n int
		if err := rows.Scan(&reason, &n); err != nil {
			r.Fatal(err)
		}
		counts[reason] = n
	}
	return counts
}

// Releaser gives units back, as a worker does.
func (r *Rig) Releaser() *lifecycle.Releaser {
	return lifecycle.NewReleaser(r.Redis, r.Keys, r.WorkerStore(), r.HandOvers(), r.Metrics.Lifecycle, r.Logger)
}

// WorkAll starts a worker that also applies releases, and waits until nothing is left to do.
func (r *Rig) WorkAll() *RunningWorker {
	r.Helper()
	running := r.StartWorker(r.Store, worker.Options{}, r.Releaser().Job())
	r.Settled()
	testkit.Eventually(r.T, SettleLimit, "every release is applied", func() bool {
		due, err := r.Store.UnappliedReleases(r.Ctx(), pipeline.SalePartition{}, 1)
		return err == nil && len(due) == 0
	})
	return running
}
