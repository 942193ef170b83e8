package pipeline_test

import (
	"context"
	"encoding/json"

	"sluice/lua"
	"sluice/pipeline"
)

// lose makes Redis lose a sale, but not its buyers and events.
func (r *rig) lose(sale *pipeline.Sale) {
	r.Helper()
	for _, p := range sale.Partitions {
		if n, err := r.rdb.Del(r.ctx(), r.keys.Sale(p, sale.ID)).Result(); err != nil || n != 1 {
			r.Fatalf("lose %s: %d, %v", sale.ID, n, err)
		}
	}
}

// verifies runs a verifier until the test ends, as an api does, with the recent accepts of the admission.
func (r *rig) verifies() {
	r.Helper()
	config := r.verifierConfig()
	config.Resubmit = r.resubmitRecent()
	verifier := pipeline.NewVerifier(config)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		verifier.Run(ctx)
	}()
	r.Cleanup(func() {
		stop()
		<-done
	})
}

func (r *rig) verifierConfig() pipeline.VerifierConfig {
	return pipeline.VerifierConfig{
		Redis: r.rdb, Keys: r.keys, Store: r.store, Partitions: r.opts.Partitions, Metrics: r.metrics.Recovery, Log: r.log,
	}
}

// resubmitRecent submits what the admission gave receipts for lately to Redis again.
func (r *rig) resubmitRecent() func(context.Context, pipeline.Partition) error {
	return pipeline.NewResubmitter(r.rdb, r.keys, r.store, r.burier(), r.metrics.Resubmit, r.log).Recent(r.admission.RecentAccepts)
}

func (r *rig) burier() *pipeline.Burier {
	return pipeline.NewBurier(r.store, r.metrics.DeadLetter, r.log)
}

// trusted reports whether every partition is; not while Redis is away.
func (r *rig) trusted() bool {
	for p := range pipeline.Partition(r.opts.Partitions) {
		if state, _, err := lua.Look(r.ctx(), r.rdb, r.keys.Look(p)); err != nil || state != lua.Trusted {
			return false
		}
	}
	return true
}

func (r *rig) ensure() {
	r.Helper()
	if err := pipeline.EnsureVerified(r.ctx(), r.rdb, r.keys, r.store, r.opts.Partitions, r.log); err != nil {
		r.Fatal(err)
	}
}

// flush loses everything, as an operator's slip does.
func (r *rig) flush() {
	r.Helper()
	if err := r.rdb.FlushAll(r.ctx()).Err(); err != nil {
		r.Fatal(err)
	}
}

// rebuilds are the reports in the audit log, oldest first.
func (r *rig) rebuilds() []pipeline.RebuildReport {
	r.Helper()
	rows, err := r.raw.Query(r.ctx(), `select detail from audit_log where action = 'rebuild' order by id`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	var reports []pipeline.RebuildReport
	for rows.Next() {
		var text []byte
		var report pipeline.RebuildReport
		if err := rows.Scan(&text); err != nil {
			r.Fatal(err)
		}
		if err := json.Unmarshal(text, &report); err != nil {
			r.Fatal(err)
		}
		reports = append(reports, report)
	}
	return reports
}
