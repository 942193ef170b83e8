package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/retry"
)

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

// superseded is the trust in a server that another one has replaced, although it trusts itself.
const superseded lua.Trust = "superseded"

// unreached is what is known of a partition whose server does not answer.
const unreached lua.Trust = "unreached"

const (
	// lookAtOnce is how many partitions are looked at together: those of a server that hangs are given up in the time of a
	// few calls.
	lookAtOnce = 16
	// lookAgain bounds the look at a partition that did not answer the last time, so that looks at the others remain
	// closer together than reopenGrace.
	lookAgain = time.Second
)

// sight is what a look saw, by partition.
type sight struct {
	states []lua.Trust
	runIDs []string // the server process that has it
	errs   []error  // why it was not reached
}

// away is why some partitions were not reached; nil where all were.
func (s *sight) away() error {
	var first error
	n := 0
	for _, err := range s.errs {
		if err != nil {
			first = cmp.Or(first, err)
			n++
		}
	}
	if first == nil {
		return nil
	}
	return pipeline.Wrap(pipeline.KindUnavailable, first,
		fmt.Sprintf("Redis did not say whether it is verified, for %d of %d partitions", n, len(s.errs)))
}

// look reads whether each partition is trusted. It fails where none is reached. A partition that belongs to another
// installation is an error: this one must not verify it. One whose server is away holds no other up.
func (v *Verifier) look(ctx context.Context) (*sight, error) {
	if err := v.readInstallation(ctx); err != nil {
		return nil, err
	}
	s := &sight{
		states: make([]lua.Trust, v.Partitions), runIDs: make([]string, v.Partitions), errs: make([]error, v.Partitions),
	}
	var each errgroup.Group
	each.SetLimit(lookAtOnce)
	for p := range s.states {
		each.Go(func() error { return v.lookAt(ctx, pipeline.Partition(p), s) })
	}
	if err := each.Wait(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(s.states, func(state lua.Trust) bool { return state != unreached }) {
		return nil, s.away()
	}
	return s, nil
}

// lookAt looks at one partition. Its error is that the partition is another installation's.
func (v *Verifier) lookAt(ctx context.Context, p pipeline.Partition, s *sight) error {
	limit := retry.CommandTimeout
	if v.seen[p].away.Load() {
		limit = lookAgain
	}
	call, cancel := context.WithTimeout(installation.WithLook(ctx), limit)
	defer cancel()
	fence := int64(v.Fence.Generation(p)) // before the look: a verification that begins later is no reason
	verified, err := lua.ReadTrust(call, v.Redis, v.Keys.ForVerify(p, v.id))
	v.seen[p].away.Store(err != nil)
	if err != nil {
		s.states[p], s.errs[p] = unreached, err
		return nil
	}
	s.states[p], s.runIDs[p] = verified.Trust, verified.Server
	itself := verified.Trust == lua.Trusted || verified.Trust == lua.Reopening
	if itself && verified.Generation < fence {
		s.states[p] = superseded
	}
	if s.states[p] == lua.Foreign {
		return v.foreign(ctx, p)
	}
	return nil
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
