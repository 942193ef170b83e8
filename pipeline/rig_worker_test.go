package pipeline_test

import (
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// labelled is count for the series with one value of one label.
func (r *rig) labelled(metric, label, value string) float64 {
	r.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.Fatalf("gather metrics: %v", err)
	}
	var sum float64
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == metric && l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// letters counts the dead letters by reason.
func (r *rig) letters() map[string]int {
	r.Helper()
	rows, err := r.raw.Query(r.ctx(), `select reason, count(*)::int from dead_letters group by reason`)
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

func (r *rig) releaser() *pipeline.Releaser {
	return pipeline.NewReleaser(r.rdb, r.keys, r.store, r.handOvers(), r.metrics.Lifecycle, r.log)
}

// workAll starts a worker that also applies releases, and waits until nothing is left to do.
func (r *rig) workAll() {
	r.Helper()
	r.startWorker(r.store, pipeline.WorkerOptions{}, r.releaser().Job())
	r.settled()
	testkit.Eventually(r.T, settleLimit, "every release is applied", func() bool {
		due, err := r.store.UnappliedReleases(r.ctx(), pipeline.SalePartition{}, 1)
		return err == nil && len(due) == 0
	})
}
