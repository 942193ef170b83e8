package audit

import (
	"context"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/retry"
)

const (
	auditLooks = 20                     // looks before the numbers are called moving
	auditPause = 250 * time.Millisecond // between two looks
)

// LedgerSource is where an audit reads Postgres.
type LedgerSource interface {
	WitnessSource
	ClosedSource
	// Ledger reads a sale's rows at one instant. It calls known for each of the orders in flight that has a row, live for
	// each live order and unapplied for each release that Postgres has not noted as applied in Redis.
	Ledger(ctx context.Context, saleID string, inFlight iter.Seq[string],
		known, live, unapplied func(pipeline.LedgerOrder) error) (pipeline.Ledger, error)
}

// Auditor proves that not one unit was lost, sold twice or leaked: total = stock + live orders + orders in flight +
// releases on their way, and the buyers in Redis are those with a live order or an order in flight.
type Auditor struct {
	rdb    redis.UniversalClient
	keys   pipeline.Keys
	ledger LedgerSource
	more   []Witness // that no api reports
}

// NewAuditor returns an Auditor over both stores.
func NewAuditor(rdb redis.UniversalClient, keys pipeline.Keys, ledger LedgerSource) *Auditor {
	return &Auditor{rdb: rdb, keys: keys, ledger: ledger}
}

// Audit compares what Redis and Postgres have of a sale. It looks again until a look finds nothing and was not
// disturbed by a release or a change of the sale; orders, and workers that persist them, don't disturb it. If every
// look was disturbed, the report is not exact. When the context ends after the first look, the report is of what was
// seen until then. A sale that is over, and that Redis does not have any more, is judged by Postgres alone. Errors:
// KindUnavailable; KindNotLoaded, where Redis does not have a sale that is not over.
func (a *Auditor) Audit(ctx context.Context, sale *pipeline.Sale) (*Report, error) {
	seen, err := a.see(ctx, sale, false)
	if err != nil {
		return nil, err
	}
	return seen.report, nil
}

// Inspection is what an audit has seen: its report, and what a repair needs to know.
type Inspection struct {
	Report     *Report
	Strays     []StrayBuyer
	Repairable bool // Redis is wrong; not so where Postgres contradicts itself
}

// StrayBuyer is a slot without a live order or an order in flight.
type StrayBuyer struct {
	UserID    string
	Slot      lua.Slot
	Partition pipeline.Partition
}

// Inspect is Audit, with what a repair needs to know.
func (a *Auditor) Inspect(ctx context.Context, sale *pipeline.Sale) (Inspection, error) {
	seen, err := a.see(ctx, sale, true)
	if err != nil {
		return Inspection{}, err
	}
	strays, err := seen.look.strayBuyers(ctx, seen.strays)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Report: seen.report, Strays: strays, Repairable: seen.repairable}, nil
}

// lookAtBoth looks at both stores. What Redis may have of a sale that has left it counts for nothing.
func (a *Auditor) lookAtBoth(ctx context.Context, sale *pipeline.Sale, strays bool) (*sighting, error) {
	if !sale.RetiredAt.IsZero() {
		return nil, pipeline.Errorf(pipeline.KindNotLoaded, "sale %s has left Redis", sale.ID)
	}
	return a.look(ctx, sale, strays)
}

// see looks until nothing more can be learned by looking again. It keeps the fingerprints of stray buyers if asked to.
func (a *Auditor) see(ctx context.Context, sale *pipeline.Sale, strays bool) (*sighting, error) {
	var seen *sighting
	found, began := 0, time.Now() // exact looks with findings
	for count := range auditLooks {
		if count > 0 {
			retry.Sleep(ctx, auditPause)
		}
		next, err := a.lookAtBoth(ctx, sale, strays)
		if pipeline.KindOf(err) == pipeline.KindNotLoaded {
			next, err = a.lookAtClosed(ctx, sale, err)
		}
		if seen != nil && ctx.Err() != nil {
			break // this look may have been cut off; the one before it was not
		}
		if err != nil {
			return nil, err
		}
		if seen == nil || next.report.Exact || !seen.report.Exact { // a disturbed look does not outweigh a finding
			seen = next
		}
		if next.report.Exact && !next.report.Clean() {
			found++
		}
		// A finding in an exact look may be a change on its way to Redis, and gone a moment later: it is looked for again. A
		// big sale takes longer to read than such a change to arrive.
		lasts := found > 1 && time.Since(began) > auditLooks*auditPause
		if seen.report.Exact && (seen.report.Clean() || lasts) {
			break
		}
	}
	return seen, nil //nolint:nilerr // a look that was cut off leaves the one before it
}
