package audit

import (
	"context"
	"fmt"
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
	Ledger(ctx context.Context, saleID string, inFlight []string, live, unapplied func(pipeline.LedgerOrder) error) (pipeline.Ledger, error)
}

// AuditReport holds the numbers of one sale, in units unless they say otherwise. Drift and everything in Findings must be
// zero and empty. What was accepted while the audit looked is left out, rows in Postgres excepted.
type Report struct {
	SaleID      string
	Total       int64
	Stock       int64 // left in Redis
	Live        int64 // in live orders in Postgres
	InFlight    int64 // accepted, in the stream, without a row yet
	Unapplied   int64 // released in Postgres, not yet given back in Redis
	Drift       int64 // Total − (Stock + Live + InFlight + Unapplied): more than 0 is lost stock, less is sold twice
	Orders      int64 // rows in Postgres, in any status
	Accepted    int64 // accepts counted by Redis
	Buyers      int64 // slots in Redis
	StrayBuyers int64 // slots without a live order or an order in flight: buyers who are shut out for nothing
	LostBuyers  int64 // live orders without a slot: buyers who could order twice
	Waiting     int64 // people in the waitlist
	BothWays    int64 // buyers who wait and hold a slot
	// What was mended or refused in the sale's life is told beside the books, which it does not unbalance (I9).
	Rejected    int64 // orders that were rejected after their accept, with a dead letter each
	Letters     int64 // dead letters of the sale that wait for an operator
	AcceptsLost int64 // accepts that rebuilds found neither in Postgres nor in the stream
	Rebuilds    int64 // how often the sale was rebuilt in Redis, repairs included; the audit log tells each
	Exact       bool  // nothing was released or redefined while the audit looked; else Drift, StrayBuyers and LostBuyers prove nothing
	Findings    []string
}

// Clean reports whether nothing wrong was found. Only an exact report proves that the sale's books are balanced.
func (r *Report) Clean() bool { return len(r.Findings) == 0 }

// Auditor proves that not one unit was lost, sold twice or leaked: total = stock + live orders + orders in flight + releases on
// their way, and the buyers in Redis are those with a live order or an order in flight.
type Auditor struct {
	rdb    redis.UniversalClient
	keys   pipeline.Keys
	ledger LedgerSource
}

// NewAuditor returns an Auditor over both stores.
func NewAuditor(rdb redis.UniversalClient, keys pipeline.Keys, ledger LedgerSource) *Auditor {
	return &Auditor{rdb: rdb, keys: keys, ledger: ledger}
}

// Audit compares a sale's Redis with its Postgres. It looks again until a look finds nothing and was not disturbed by a
// release or a change of the sale; orders, and workers that persist them, don't disturb it. Where no look is undisturbed,
// the report is not exact. When the context ends after the first look, what was seen until then is told.
// Errors: KindUnavailable, KindNotLoaded.
func (a *Auditor) Audit(ctx context.Context, sale *pipeline.Sale) (*Report, error) {
	seen, err := a.Inspect(ctx, sale)
	return seen.Report, err
}

// Inspection is what an audit has seen: its report, and what a repair needs besides.
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

// Inspect is Audit, with what a repair needs besides.
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
		// A finding in an exact look can only be a change on its way to Redis; it has passed a moment later.
		if seen.Report.Exact && seen.Report.Clean() {
			break
		}
	}
	return seen, nil //nolint:nilerr // a look that was cut off leaves the one before it
}

// look reads in the order in which an order travels: slots, stream, Postgres. An event that a worker persists meanwhile is
// then seen in both places, and counted once, by its order id; it is never missed. Stock and accepts are read together, and
// first: they are the instant that everything else is counted up to.
func (a *Auditor) look(ctx context.Context, sale *pipeline.Sale) (Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
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
	seen := books.close(sale.ID, after, ledger)
	seen.Report.findWaiting(waitlists, slots)
	return seen, nil
}

// PartitionCounters are a sale's counters in Redis, by partition.
type PartitionCounters map[pipeline.Partition]redisstore.SaleCounters

func (c PartitionCounters) sum() redisstore.SaleCounters {
	var sum redisstore.SaleCounters
	for _, p := range c {
		sum.Stock += p.Stock
		sum.Total += p.Total
		sum.Accepted += p.Accepted
	}
	return sum
}

// onlyAccepts reports whether nothing but accepts happened between two readings.
func (c PartitionCounters) onlyAccepts(later PartitionCounters) bool {
	for p, was := range c {
		is := later[p]
		if is.Total != was.Total || is.Released != was.Released || is.Version != was.Version || is.Accepted < was.Accepted {
			return false
		}
	}
	return true
}

// Counters reads a sale's counters on all of its partitions. Errors: KindNotLoaded, KindUnavailable.
func (a *Auditor) Counters(ctx context.Context, sale *pipeline.Sale) (PartitionCounters, error) {
	counters := make(PartitionCounters, len(sale.Partitions))
	for _, p := range sale.Partitions {
		c, err := redisstore.ReadSale(ctx, a.rdb, a.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p})
		if err != nil {
			return nil, err
		}
		counters[p] = c
	}
	return counters, nil
}

// placedSlot is a slot with the partition that holds it, where its sequence is counted.
type placedSlot struct {
	lua.Slot
	Partition pipeline.Partition
}

// slots reads who holds a slot: user id → slot.
func (a *Auditor) slots(ctx context.Context, sale *pipeline.Sale) (map[string]placedSlot, error) {
	slots := map[string]placedSlot{}
	for _, p := range sale.Partitions {
		err := redisstore.EachSlot(ctx, a.rdb, a.keys, pipeline.SalePartition{SaleID: sale.ID, Partition: p}, func(userID string, slot lua.Slot, ok bool) {
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

// books takes one sale's numbers together, up to the accepts that Redis had counted when the look began.
type books struct {
	before    PartitionCounters
	slots     map[string]placedSlot
	events    map[string]pipeline.Event
	matched   map[string]bool // users whose slot is accounted for
	units     int64           // live in Postgres
	releasing int64           // released in Postgres, and the slot is still there
	lost      int64
	// What Postgres holds of later accepts. As many as were accepted during the look, or lost by Redis: close tells.
	laterLive, laterReleases []pipeline.LedgerOrder
}

func newBooks(before PartitionCounters, slots map[string]placedSlot, events map[string]pipeline.Event) *books {
	return &books{before: before, slots: slots, events: events, matched: make(map[string]bool, len(slots))}
}

func (b *books) isLater(p pipeline.Partition, sequence int64) bool {
	was, ok := b.before[p]
	return ok && sequence > was.Accepted
}

func (b *books) live(o pipeline.LedgerOrder) error {
	if b.isLater(o.Partition, o.Sequence) {
		b.laterLive = append(b.laterLive, o)
		return nil
	}
	b.countLive(o)
	return nil
}

func (b *books) countLive(o pipeline.LedgerOrder) {
	b.units += int64(o.Quantity)
	b.match(o.UserID, o.OrderID)
}

// match accounts for the slot of a buyer's order, or for its absence.
func (b *books) match(userID, orderID string) {
	if b.slots[userID].OrderID == orderID {
		b.matched[userID] = true
	} else {
		b.lost++
	}
}

func (b *books) unapplied(o pipeline.LedgerOrder) error {
	if b.isLater(o.Partition, o.Sequence) {
		b.laterReleases = append(b.laterReleases, o)
		return nil
	}
	b.countRelease(o)
	return nil
}

// countRelease counts a release that Redis has not seen. Once the slot is gone it has, and only the mark in Postgres is late.
func (b *books) countRelease(o pipeline.LedgerOrder) {
	if b.slots[o.UserID].OrderID == o.OrderID {
		b.releasing += int64(o.Quantity)
		b.matched[o.UserID] = true
	}
}

func (b *books) close(saleID string, after PartitionCounters, ledger pipeline.Ledger) Inspection {
	// Accepted during the look: not of this report. Later than even the last count, Redis has lost it or never counted it.
	meanwhile := func(p pipeline.Partition, sequence int64) bool {
		return b.isLater(p, sequence) && sequence <= after[p].Accepted
	}
	for _, o := range b.laterLive {
		if !meanwhile(o.Partition, o.Sequence) {
			b.countLive(o)
		}
	}
	for _, o := range b.laterReleases {
		if !meanwhile(o.Partition, o.Sequence) {
			b.countRelease(o)
		}
	}
	var inFlight, buyers int64
	var strays []StrayBuyer
	for id, e := range b.events {
		if _, persisted := ledger.Known[id]; persisted || meanwhile(e.Partition, e.Sequence) {
			continue
		}
		inFlight += int64(e.Quantity)
		b.match(e.UserID, id)
	}
	for user, slot := range b.slots {
		if meanwhile(slot.Partition, slot.Sequence) {
			continue
		}
		buyers++
		if !b.matched[user] {
			strays = append(strays, StrayBuyer{user, slot.Slot, slot.Partition})
		}
	}
	redis := b.before.sum()
	r := &Report{
		SaleID: saleID, Total: ledger.Total, Stock: redis.Stock, Live: b.units, InFlight: inFlight, Unapplied: b.releasing,
		Drift:  ledger.Total - redis.Stock - b.units - inFlight - b.releasing,
		Orders: ledger.Orders, Accepted: redis.Accepted, Buyers: buyers,
		StrayBuyers: int64(len(strays)), LostBuyers: b.lost, Exact: b.before.onlyAccepts(after),
		Rejected: ledger.ByStatus[pipeline.StatusRejected], Letters: ledger.Letters, AcceptsLost: ledger.Lost, Rebuilds: ledger.Rebuilds,
	}
	return Inspection{Report: r, Strays: strays, Repairable: r.find(redis, ledger)}
}

// find says what is wrong, and whether any of it is wrong in Redis, where it can be mended. A disturbed look says only what one
// store alone proves.
func (r *Report) find(redis redisstore.SaleCounters, ledger pipeline.Ledger) (repairable bool) {
	found := func(inRedis, broken bool, format string, args ...any) {
		if broken {
			r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
			repairable = repairable || inRedis
		}
	}
	found(true, r.Exact && r.Drift > 0, "%d units are missing: neither in stock nor in an order", r.Drift)
	found(true, r.Exact && r.Drift < 0, "%d units are sold twice", -r.Drift)
	found(true, redis.Stock < 0, "the stock in Redis is %d", redis.Stock)
	found(false, ledger.LiveUnits > r.Total, "%d units are in live orders, of %d in all", ledger.LiveUnits, r.Total)
	found(false, ledger.Sold != ledger.LiveUnits, "Postgres counts %d units sold, its live orders hold %d", ledger.Sold, ledger.LiveUnits)
	found(true, r.Exact && redis.Total != ledger.Total, "the total is %d in Redis and %d in Postgres", redis.Total, ledger.Total)
	found(true, r.Exact && r.StrayBuyers != 0, "%d buyers are marked in Redis without an order", r.StrayBuyers)
	found(true, r.Exact && r.LostBuyers != 0, "%d orders have no buyer marked in Redis", r.LostBuyers)
	return repairable
}

// Notes say what was mended or refused in the sale's life. None of it is wrong now, and none of it is silent (I9).
func (r *Report) Notes() []string {
	var notes []string
	note := func(n int64, format string) {
		if n != 0 {
			notes = append(notes, fmt.Sprintf(format, n))
		}
	}
	note(r.Rejected, "%d accepted orders were rejected, each with a dead letter")
	note(r.Letters, "%d dead letters wait for an operator")
	note(r.AcceptsLost, "%d accepts were found nowhere by a rebuild, when Redis had lost something")
	note(r.Rebuilds, "rebuilt in Redis %d times; the audit log tells when, by whom and with what numbers")
	return notes
}
