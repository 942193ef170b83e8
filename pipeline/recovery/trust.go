package recovery

import (
	"context"
	"errors"
	"time"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/retry"
)

// seenPartition is what the previous look saw of a partition.
type seenPartition struct {
	runID string
	due   bool // recent accepts must be submitted again once it is open
}

// readInstallation reads the installation's id from Postgres, once: it never changes.
func (v *Verifier) readInstallation(ctx context.Context) error {
	if v.id != "" {
		return nil
	}
	id, err := v.Store.Installation(ctx)
	if err == nil {
		v.id = id
	}
	return err
}

// look reads whether each partition is trusted, and which server process has it. A partition that belongs to another
// installation is an error: this one must not verify it.
func (v *Verifier) look(ctx context.Context) (states []lua.Trust, runIDs []string, err error) {
	if err := v.readInstallation(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(installation.WithLook(ctx), retry.CommandTimeout)
	defer cancel()
	states, runIDs = make([]lua.Trust, v.Partitions), make([]string, v.Partitions)
	for p := range states {
		states[p], runIDs[p], err = lua.ReadTrust(ctx, v.Redis, v.Keys.ForVerify(pipeline.Partition(p), v.id))
		if err != nil {
			return nil, nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say whether it is verified")
		}
		if states[p] == lua.Foreign {
			return nil, nil, v.foreign(ctx, pipeline.Partition(p))
		}
	}
	return states, runIDs, nil
}

// foreign returns the error that names the installation to which a partition belongs.
func (v *Verifier) foreign(ctx context.Context, p pipeline.Partition) error {
	err := installation.CheckOwners(ctx, v.Redis, v.Keys, []pipeline.Partition{p}, v.id)
	if err == nil { // its owner has changed since
		err = errOvertaken(p)
	}
	return err
}

func errOvertaken(p pipeline.Partition) error {
	return pipeline.Errorf(pipeline.KindUnavailable,
		"partition %s was taken by another verification, or by another server process", p)
}

// mayHaveMissed reports whether a partition can have lost something and be open again since the previous look, because
// this process was stopped or cut off from Redis. What was rebuilt does not open during the grace, so looks that are
// closer together notice it. The run_id is no help: a flush does not change it. The wall clock counts the time in which
// the machine slept; the monotonic one can't be set.
func (v *Verifier) mayHaveMissed(now time.Time) bool {
	since := max(now.Sub(v.looked), now.Round(0).Sub(v.looked.Round(0)))
	return !v.looked.IsZero() && since >= reopenGrace
}

// note records whether the recent accepts of a partition have to be submitted again.
func (v *Verifier) note(p pipeline.Partition, state lua.Trust, runID string) {
	gauge := v.Metrics.trusted.WithLabelValues(p.String())
	gauge.Set(1)
	seen := &v.seen[p]
	if state != lua.Trusted {
		gauge.Set(0)
		seen.due = true
	}
	if seen.runID != "" && seen.runID != runID {
		seen.due = true
	}
	seen.runID = runID
}

// resubmitDue submits recent accepts again on the partitions where that is due, once they take them.
func (v *Verifier) resubmitDue(ctx context.Context, states []lua.Trust) error {
	var errs []error
	for p, state := range states {
		if !v.seen[p].due || state == lua.Untrusted {
			continue
		}
		err := v.resubmit(ctx, pipeline.Partition(p))
		errs = append(errs, err)
		// During the grace this is repeated at each look: an accept whose answer was still under way may be known now.
		v.seen[p].due = err != nil || state == lua.Reopening
	}
	return errors.Join(errs...)
}

// resubmit submits this process' own recent accepts.
func (v *Verifier) resubmit(ctx context.Context, p pipeline.Partition) error {
	if v.Resubmit == nil {
		return nil
	}
	return v.Resubmit(ctx, p)
}
