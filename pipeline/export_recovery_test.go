package pipeline

import (
	"context"
)

// The limits of a Reconciler.
const (
	ReconcileSales = reconcileSales
)

// Drift is one check of a sale's units.
func (s *Reconciler) Drift(ctx context.Context, sale *Sale) (units int64, exact bool, err error) {
	found := map[string]Drift{}
	err = s.checkAll(ctx, []*Sale{sale}, found)
	return found[sale.ID].Units, found[sale.ID].Exact, err
}
