package recovery

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// seenPartition is what the last look that reached a partition saw of it.
type seenPartition struct {
	runID  string
	looked time.Time   // when that look began; zero before the first
	due    bool        // kept accepts must be submitted again once it is open for them
	away   atomic.Bool // the latest look did not reach it
}

// awayForLong is how long a server may be away until a process counts as one that sees Redis without it. A replica
// takes over within seconds: a process that does not find it then is cut off from it, and the verification of what took
// over must not wait for that process for minutes. Where nothing takes over, there is no verification to hold up.
const awayForLong = 15 * time.Second

// seesEnough reports whether a look that began at some time reached every partition that is not away for long.
func (v *Verifier) seesEnough(began time.Time) bool {
	for p := range v.seen {
		if v.seen[p].away.Load() && began.Sub(v.seen[p].looked) < awayForLong {
			return false
		}
	}
	return true
}

// mayHaveMissed reports whether a partition can have lost something and be open again since the previous look, because
// this process was stopped or cut off from its server. What was rebuilt does not open during the grace, so looks that
// are closer together notice it. The run_id is no help: a flush does not change it. The wall clock counts the time in
// which the machine slept; the monotonic one can't be set.
func (s *seenPartition) mayHaveMissed(now time.Time) bool {
	since := max(now.Sub(s.looked), now.Round(0).Sub(s.looked.Round(0)))
	return !s.looked.IsZero() && since >= reopenGrace
}

// note records whether the kept accepts of a partition have to be submitted again, after a look that reached it.
func (v *Verifier) note(p pipeline.Partition, state lua.Trust, runID string, began time.Time) {
	gauge := v.Metrics.trusted.WithLabelValues(p.String())
	gauge.Set(1)
	seen := &v.seen[p]
	if state != lua.Trusted {
		gauge.Set(0)
		seen.due = true
	}
	if seen.runID != "" && seen.runID != runID || seen.mayHaveMissed(time.Now()) {
		seen.due = true
	}
	seen.runID, seen.looked = runID, began
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
		if v.seen[p].due && state != lua.Untrusted && state != unreached {
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
