package pipeline

import (
	"context"
	"time"
)

// What the tests outside of the package need to see of its inside. They can't be inside: the test servers' package imports
// this one.

// Waiting is how many requests wait in all gates, those of the call in flight not counted.
func (a *Admission) Waiting() int {
	waiting := 0
	a.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		waiting += len(g.waiting)
		return true
	})
	return waiting
}

// Busy reports whether any gate has requests, waiting or in a call.
func (a *Admission) Busy() bool {
	busy := false
	a.gates.Range(func(_, value any) bool {
		g := value.(*gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		busy = busy || g.draining
		return true
	})
	return busy
}

// SetClock replaces the host's clock.
func (n *Numbers) SetClock(now func() time.Time) { n.now = now }

// NumberBlock is how many numbers one lease holds.
const NumberBlock = numberBlock

// CatalogueLimit is how many sales a Catalogue keeps.
const CatalogueLimit = catalogueLimit

// CatalogueLookups is how many look-ups of unknown sales may be under way at once.
const CatalogueLookups = catalogueLookups

// LookingUp is how many look-ups of unknown sales are under way.
func (c *Catalogue) LookingUp() int { return len(c.slots) }

// Look is one look of an audit, without the further ones that let a passing finding pass.
func (a *Auditor) Look(ctx context.Context, sale *Sale) (*AuditReport, error) {
	seen, err := a.look(ctx, sale)
	return seen.report, err
}

// The limits of a steward.
const (
	StewardSales  = stewardSales
	BalanceEvents = balanceEvents
)

// Drift is one check of a sale's units.
func (s *Steward) Drift(ctx context.Context, sale *Sale) (units int64, exact bool, err error) {
	found := map[string]drift{}
	err = s.checkAll(ctx, []*Sale{sale}, found)
	return found[sale.ID].units, found[sale.ID].exact, err
}
