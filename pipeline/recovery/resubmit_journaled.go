package recovery

import (
	"context"
	"errors"
	"slices"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// seenPartition is what the previous look saw of a partition.
type seenPartition struct {
	runID string
	due   bool // kept accepts must be submitted again once it is open for them
}

// mayHaveMissed reports whether a partition can have lost something and be open again since the previous look, because
// this process was stopped or cut off from Redis. What was rebuilt does not open during the grace, so looks that are
// closer together notice it. The run_id is no help: a flush does not change it. The wall clock counts the time in which
// the machine slept; the monotonic one can't be set.
func (v *Verifier) mayHaveMissed(now time.Time) bool {
	since := max(now.Sub(v.looked), now.Round(0).Sub(v.looked.Round(0)))
	return !v.looked.IsZero() && since >= reopenGrace
}

// note records whether the kept accepts of a partition have to be submitted again.
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

// resubmitDue submits kept accepts again on the partitions where that is due, once they take them, and says so in
// Postgres: a verification waits for that before it lets buyers order.
func (v *Verifier) resubmitDue(ctx context.Context, states []lua.Trust) error {
	if v.Accepts != nil && v.Accepts.TookOver() {
		for p := range v.seen {
			v.seen[p].due = true
		}
	}
	var due []pipeline.Partition
	for p, state := range states {
		if v.seen[p].due && state != lua.Untrusted {
			due = append(due, pipeline.Partition(p))
		}
	}
	if len(due) == 0 {
		return nil
	}
	// Before they are submitted: a verification that begins from here on is not covered by them.
	generation, err := v.Fence.Refresh(ctx)
	if err != nil {
		return err
	}
	uncovered, err := v.cover(ctx, generation, due)
	for _, p := range due {
		// One that is not trusted yet is looked at again: its verification may be followed by another.
		v.seen[p].due = states[p] != lua.Trusted || slices.Contains(uncovered, p)
	}
	return err
}

// cover submits this process' kept accepts on some partitions, and says so in Postgres. What was done since the
// generation began is not done again: Postgres knows, also if it was restored since. It returns the partitions that are
// left.
func (v *Verifier) cover(
	ctx context.Context, g pipeline.Generation, partitions []pipeline.Partition,
) (left []pipeline.Partition, err error) {
	if v.Accepts == nil {
		return nil, nil
	}
	left, err = v.Accepts.Uncovered(ctx, g, partitions)
	if err != nil {
		return partitions, err
	}
	if len(left) == 0 {
		return nil, nil
	}
	// A server that was replaced before g began refuses them, so that it can't be one for which they count.
	if _, err := v.Fence.Refresh(ctx); err != nil {
		return left, err
	}
	// An order that Postgres has forgotten may have ended: it must not take units again.
	if err := v.Fence.Examined(); err != nil {
		return left, err
	}
	v.covering.Store(true)
	defer v.covering.Store(false)
	done, err := v.Accepts.Resubmit(ctx, left)
	if len(done) == 0 {
		return left, err
	}
	if coverErr := v.Accepts.Cover(ctx, g, done); coverErr != nil {
		return left, errors.Join(err, coverErr)
	}
	return slices.DeleteFunc(left, func(p pipeline.Partition) bool { return slices.Contains(done, p) }), err
}
