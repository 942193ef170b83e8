package recovery

import (
	"context"

	"sluice/pipeline"
	"sluice/pipeline/audit"
)

// The limits of a Reconciler.
const (
	ReconcileSales = reconcileSales
)

// Drift is one check of a sale's units.
func (r *Reconciler) Drift(ctx context.Context, sale *pipeline.Sale) (units int64, exact bool, err error) {
	found := map[string]audit.Drift{}
	err = r.checkAll(ctx, []*pipeline.Sale{sale}, found)
	return found[sale.ID].Units, found[sale.ID].Exact, err
}

// SilentLimit and CoverLimit bound the wait for journals whose processes give no sign of life, or live.
const (
	SilentLimit = silentLimit
	CoverLimit  = coverLimit
)
