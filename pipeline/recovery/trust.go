package recovery

import (
	"context"

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
		p := pipeline.Partition(p)
		fence := int64(v.Fence.Generation(p)) // before the look: a verification that begins later is no reason
		verified, err := lua.ReadTrust(ctx, v.Redis, v.Keys.ForVerify(p, v.id))
		if err != nil {
			return nil, nil, pipeline.Wrap(pipeline.KindUnavailable, err, "Redis did not say whether it is verified")
		}
		states[p], runIDs[p] = verified.Trust, verified.Server
		itself := verified.Trust == lua.Trusted || verified.Trust == lua.Reopening
		if itself && verified.Generation < fence {
			states[p] = superseded
		}
		if states[p] == lua.Foreign {
			return nil, nil, v.foreign(ctx, p)
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
