package audit

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
	"sluice/pipeline/retry"
)

const (
	auditTimeout = 2 * time.Minute        // one look at one sale
	auditLooks   = 20                     // looks before the numbers are called moving
	auditPause   = 250 * time.Millisecond // between two looks
)

// LedgerSource is where an audit reads Postgres.
type LedgerSource interface {
	WitnessSource
	// Ledger reads a sale's rows at one instant. It calls live for each live order and unapplied for each release that
	// Postgres has not noted as applied in Redis, and says which of the orders in flight have a row.
	Ledger(ctx context.Context, saleID string, inFlight []string,
		live, unapplied func(pipeline.LedgerOrder) error) (pipeline.Ledger, error)
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
// seen until then. Errors: KindUnavailable, KindNotLoaded.
func (a *Auditor) Audit(ctx context.Context, sale *pipeline.Sale) (*Report, error) {
	seen, err := a.Inspect(ctx, sale)
	return seen.Report, err
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
	var seen Inspection
	for look := range auditLooks {
		if look > 0 {
			retry.Sleep(ctx, auditPause)
		}
		next, err := a.look(ctx, sale)
		if seen.Report != nil && ctx.Err() != nil {
			break // this look may have been cut off; the one before it was not
		}
		if err != nil {
			return Inspection{}, err
		}
		if seen.Report == nil || next.Report.Exact || !seen.Report.Exact { // a disturbed look does not outweigh a finding
			seen = next
		}
		// A finding in an exact look may be a change on its way to Redis, and gone a moment later: it is looked for again.
		if seen.Report.Exact && seen.Report.Clean() {
			break
		}
	}
	return seen, nil //nolint:nilerr // a look that was cut off leaves the one before it
}

// look reads in the order in which an order travels: slots, stream, Postgres. An event that a worker persists meanwhile
// is then seen in both places, and counted once, by its order id; it is never missed. Stock and accepts are read
// together, and before them: all three are counted up to that instant. What buyers were told is read before everything
// else (see witnesses), and compared with everything else.
func (a *Auditor) look(ctx context.Context, sale *pipeline.Sale) (Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	witnesses, err := a.witnesses(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	before, err := a.Counters(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	slots, err := a.slots(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	waitlists, err := a.waitlists(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	events, err := a.events(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	books := newBooks(before, slots, events)
	ledger, err := a.ledger.Ledger(ctx, sale.ID, slices.Collect(maps.Keys(events)), books.live, books.unapplied)
	if err != nil {
		return Inspection{}, err
	}
	after, err := a.Counters(ctx, sale)
	if err != nil {
		return Inspection{}, err
	}
	if err := a.lostBy(ctx, witnesses, books); err != nil {
		return Inspection{}, err
	}
	seen := books.close(sale.ID, after, ledger)
	seen.Report.checkWaitlists(waitlists, slots)
	seen.Report.checkReceipts(witnesses)
	return seen, nil
}

// placedSlot is a slot with its partition, on which its sequence is counted.
type placedSlot struct {
	lua.Slot
	Partition pipeline.Partition
}

// slots reads the slots of a sale's buyers: user id → slot.
func (a *Auditor) slots(ctx context.Context, sale *pipeline.Sale) (map[string]placedSlot, error) {
	slots := map[string]placedSlot{}
	for _, p := range sale.Partitions {
		at := pipeline.SalePartition{SaleID: sale.ID, Partition: p}
		err := redisstore.EachSlot(ctx, a.rdb, a.keys, at, func(userID string, slot lua.Slot, ok bool) {
			if !ok {
				slot = lua.Slot{OrderID: "unreadable"}
			}
			slots[userID] = placedSlot{slot, p}
		})
		if err != nil {
			return nil, err
		}
	}
	return slots, nil
}

// events reads the sale's events in the stream: order id → event.
func (a *Auditor) events(ctx context.Context, sale *pipeline.Sale) (map[string]pipeline.Event, error) {
	events := map[string]pipeline.Event{}
	for _, p := range sale.Partitions {
		err := redisstore.EachEvent(ctx, a.rdb, a.keys, p, func(e pipeline.Event) bool {
			if e.SaleID == sale.ID {
				events[e.OrderID] = e
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return events, nil
}
