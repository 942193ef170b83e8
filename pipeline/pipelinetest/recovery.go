package pipelinetest

import (
	"encoding/json"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/recovery"
	"sluice/pipeline/resubmit"
)

// Lose makes Redis lose a sale, but not its buyers and events.
func (r *Rig) Lose(sale *pipeline.Sale) {
	r.Helper()
	for _, p := range sale.Partitions {
		if n, err := r.Redis.Del(r.Ctx(), r.Keys.Sale(p, sale.ID)).Result(); err != nil || n != 1 {
			r.Fatalf("lose %s: %d, %v", sale.ID, n, err)
		}
	}
}

// Verifies runs a verifier until the test ends, as an api does, with the recent accepts of the admission.
func (r *Rig) Verifies() {
	r.Helper()
	config := r.VerifierConfig()
	config.Accepts = r.Journaled()
	r.Background(r.Fence.Run)
	r.Background(recovery.NewVerifier(config).Run)
}

// VerifierConfig is that of a verifier over the rig's stores.
func (r *Rig) VerifierConfig() recovery.VerifierConfig {
	return recovery.VerifierConfig{
		Redis: r.Redis, Keys: r.Keys, Store: r.Store, Partitions: r.Options.Partitions, Fence: r.Fence,
		Metrics: r.Metrics.Recovery, Log: r.Logger, Ledger: r.Store, Burier: r.Burier(),
	}
}

// Journaled submits what the admission gave receipts for to Redis again.
func (r *Rig) Journaled() *resubmit.Journaled {
	r.Helper()
	journal := r.Admission.Journal()
	if err := journal.Announce(r.Ctx(), r.Store); err != nil {
		r.Fatal(err)
	}
	return resubmit.NewJournaled(r.Resubmitter(), journal, r.Store, r.Admission.Settle)
}

// Resubmitter submits accepts to Redis again.
func (r *Rig) Resubmitter() *resubmit.Resubmitter {
	return resubmit.New(resubmit.Config{
		Redis: r.Redis, Keys: r.Keys, Store: r.Store, Burier: r.Burier(), Fence: r.Fence, Metrics: r.Metrics.Resubmit,
		Log: r.Logger,
	})
}

// Burier writes dead letters into the rig's store.
func (r *Rig) Burier() *deadletter.Burier {
	return deadletter.NewBurier(r.Store, r.Metrics.DeadLetter, r.Logger)
}

// Trusted reports whether every partition is; not while Redis is away.
func (r *Rig) Trusted() bool {
	for p := range pipeline.Partition(r.Options.Partitions) {
		verified, err := lua.ReadTrust(r.Ctx(), r.Redis, r.Keys.ForVerify(p, ""))
		if err != nil || verified.Trust != lua.Trusted {
			return false
		}
	}
	return true
}

// Ensure verifies every partition.
func (r *Rig) Ensure() {
	r.Helper()
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, r.Store, r.Options.Partitions, r.Logger); err != nil {
		r.Fatal(err)
	}
}

// Flush loses everything, as an operator's slip does.
func (r *Rig) Flush() {
	r.Helper()
	if err := r.Redis.FlushAll(r.Ctx()).Err(); err != nil {
		r.Fatal(err)
	}
}

// Rebuilds are the reports in the audit log, oldest first.
func (r *Rig) Rebuilds() []pipeline.RebuildReport {
	r.Helper()
	rows, err := r.SQL.Query(r.Ctx(), `select detail from audit_log where action = 'rebuild' order by id`)
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
