package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

const (
	auditScanCount = 1000                   // slots or events per read, so that a big sale holds Redis up for no more than a millisecond
	auditTimeout   = 2 * time.Minute        // one look at one sale
	auditLooks     = 20                     // looks before the numbers are called moving
	auditPause     = 250 * time.Millisecond // between two looks
)

// LedgerSource is where an audit reads Postgres.
type LedgerSource interface {
	Ledger(ctx context.Context, saleID string, inFlight []string, live, unapplied func(LedgerOrder) error) (Ledger, error)
}

// AuditReport holds the numbers of one sale, in units unless they say otherwise. Drift and everything in Findings must be
// zero and empty. What was accepted while the audit looked is left out, rows in Postgres excepted.
type AuditReport struct {
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
func (r *AuditReport) Clean() bool { return len(r.Findings) == 0 }

// Auditor proves that not one unit was lost, sold twice or leaked (DESIGN section 2).
type Auditor struct {
	rdb    redis.UniversalClient
	keys   Keys
	ledger LedgerSource
}

// NewAuditor returns an Auditor over both stores.
func NewAuditor(rdb redis.UniversalClient, keys Keys, ledger LedgerSource) *Auditor {
	return &Auditor{rdb: rdb, keys: keys, ledger: ledger}
}

// Audit compares a sale's Redis with its Postgres. It looks again until a look finds nothing and was not disturbed by a
// release or a change of the sale; orders, and workers that persist them, don't disturb it. Where no look is undisturbed,
// the report is not exact. When the context ends after the first look, what was seen until then is told.
// Errors: KindUnavailable, KindNotLoaded.
func (a *Auditor) Audit(ctx context.Context, sale *Sale) (*AuditReport, error) {
	seen, err := a.audit(ctx, sale)
	return seen.report, err
}

// sight is what an audit has seen: its report, and what a repair needs besides.
type sight struct {
	report     *AuditReport
	strays     []strayBuyer
	repairable bool // Redis is wrong; not so where Postgres contradicts itself
}

// strayBuyer is a slot without a live order or an order in flight.
type strayBuyer struct {
	userID string
	placedSlot
}

func (a *Auditor) audit(ctx context.Context, sale *Sale) (sight, error) {
	var seen sight
	for look := range auditLooks {
		if look > 0 {
			sleep(ctx, auditPause)
		}
		next, err := a.look(ctx, sale)
		if seen.report != nil && ctx.Err() != nil {
			break // this look may have been cut off; the one before it was not
		}
		if err != nil {
			return sight{}, err
		}
		if seen.report == nil || next.report.Exact || !seen.report.Exact { // a disturbed look does not outweigh a finding
			seen = next
		}
		// A finding in an exact look can only be a change on its way to Redis; it has passed a moment later.
		if seen.report.Exact && seen.report.Clean() {
			break
		}
	}
	return seen, nil //nolint:nilerr // a look that was cut off leaves the one before it
}

// look reads in the order in which an order travels: slots, stream, Postgres. An event that a worker persists meanwhile is
// then seen in both places, and counted once, by its order id; it is never missed. Stock and accepts are read together, and
// first: they are the instant that everything else is counted up to.
func (a *Auditor) look(ctx context.Context, sale *Sale) (sight, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	before, err := a.counters(ctx, sale)
	if err != nil {
		return sight{}, err
	}
	slots, err := a.slots(ctx, sale)
	if err != nil {
		return sight{}, err
	}
	waitlists, err := a.waitlists(ctx, sale)
	if err != nil {
		return sight{}, err
	}
	events, err := a.events(ctx, sale)
	if err != nil {
		return sight{}, err
	}
	books := newBooks(before, slots, events)
	ledger, err := a.ledger.Ledger(ctx, sale.ID, slices.Collect(maps.Keys(events)), books.live, books.unapplied)
	if err != nil {
		return sight{}, err
	}
	after, err := a.counters(ctx, sale)
	if err != nil {
		return sight{}, err
	}
	seen := books.close(sale.ID, after, ledger)
	seen.report.findWaiting(waitlists, slots)
	return seen, nil
}

// saleCounters is what Redis counts of a sale on one partition, all of it at one instant.
type saleCounters struct{ stock, total, accepted, released, version int64 }

// partitionCounters are those of all of a sale's partitions.
type partitionCounters map[Partition]saleCounters

func (c partitionCounters) sum() saleCounters {
	var sum saleCounters
	for _, p := range c {
		sum.stock += p.stock
		sum.total += p.total
		sum.accepted += p.accepted
	}
	return sum
}

// onlyAccepts reports whether nothing but accepts happened between two readings.
func (c partitionCounters) onlyAccepts(later partitionCounters) bool {
	for p, was := range c {
		is := later[p]
		if is.total != was.total || is.released != was.released || is.version != was.version || is.accepted < was.accepted {
			return false
		}
	}
	return true
}

func (a *Auditor) counters(ctx context.Context, sale *Sale) (partitionCounters, error) {
	counters := make(partitionCounters, len(sale.Partitions))
	for _, p := range sale.Partitions {
		values, err := a.rdb.HMGet(ctx, a.keys.Sale(p, sale.ID), "stock", "total", "accepted", "released", "version").Result()
		if err != nil {
			return nil, Wrap(KindUnavailable, err, "Redis did not tell the sale's counters")
		}
		var c saleCounters
		for i, into := range []*int64{&c.stock, &c.total, &c.accepted, &c.released, &c.version} {
			text, ok := values[i].(string)
			if !ok {
				return nil, Errorf(KindNotLoaded, "Redis does not hold sale %s on partition %s", sale.ID, p)
			}
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, Wrap(KindUnavailable, err, "Redis holds a counter that is not a number")
			}
		}
		counters[p] = c
	}
	return counters, nil
}

// placedSlot is a slot with the partition that holds it, where its sequence is counted.
type placedSlot struct {
	lua.Slot
	partition Partition
}

// slots reads who holds a slot: user id → slot.
func (a *Auditor) slots(ctx context.Context, sale *Sale) (map[string]placedSlot, error) {
	slots := map[string]placedSlot{}
	for _, p := range sale.Partitions {
		var cursor uint64
		for {
			page, next, err := a.rdb.HScan(ctx, a.keys.Buyers(p, sale.ID), cursor, "", auditScanCount).Result()
			if err != nil {
				return nil, Wrap(KindUnavailable, err, "Redis did not list the buyers")
			}
			for i := 0; i+1 < len(page); i += 2 {
				slot, err := lua.ParseSlot(page[i+1])
				if err != nil {
					slot = lua.Slot{OrderID: "unreadable"}
				}
				slots[page[i]] = placedSlot{slot, p}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return slots, nil
}

// events reads the sale's events in the stream: order id → event. What can't be decoded belongs to no sale.
func (a *Auditor) events(ctx context.Context, sale *Sale) (map[string]Event, error) {
	events := map[string]Event{}
	for _, p := range sale.Partitions {
		err := eachEntry(ctx, a.rdb, a.keys.Orders(p), func(m redis.XMessage) {
			if e, err := DecodeEvent(p, m.ID, m.Values); err == nil && e.SaleID == sale.ID {
				events[e.OrderID] = e
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return events, nil
}

// eachEntry reads a stream from its beginning to its end, page by page.
func eachEntry(ctx context.Context, rdb redis.UniversalClient, stream string, do func(redis.XMessage)) error {
	from := "-"
	for {
		page, err := rdb.XRangeN(ctx, stream, from, "+", auditScanCount).Result()
		if err != nil {
			return Wrap(KindUnavailable, err, "Redis did not list the order events")
		}
		for _, m := range page {
			do(m)
		}
		if len(page) < auditScanCount {
			return nil
		}
		from = "(" + page[len(page)-1].ID
	}
}

// books takes one sale's numbers together, up to the accepts that Redis had counted when the look began.
type books struct {
	before    partitionCounters
	slots     map[string]placedSlot
	events    map[string]Event
	matched   map[string]bool // users whose slot is accounted for
	units     int64           // live in Postgres
	releasing int64           // released in Postgres, and the slot is still there
	lost      int64
	// What Postgres holds of later accepts. As many as were accepted during the look, or lost by Redis: close tells.
	laterLive, laterReleases []LedgerOrder
}

func newBooks(before partitionCounters, slots map[string]placedSlot, events map[string]Event) *books {
	return &books{before: before, slots: slots, events: events, matched: make(map[string]bool, len(slots))}
}

func (b *books) isLater(p Partition, sequence int64) bool {
	was, ok := b.before[p]
	return ok && sequence > was.accepted
}

func (b *books) live(o LedgerOrder) error {
	if b.isLater(o.Partition, o.Sequence) {
		b.laterLive = append(b.laterLive, o)
		return nil
	}
	b.countLive(o)
	return nil
}

func (b *books) countLive(o LedgerOrder) {
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

func (b *books) unapplied(o LedgerOrder) error {
	if b.isLater(o.Partition, o.Sequence) {
		b.laterReleases = append(b.laterReleases, o)
		return nil
	}
	b.countRelease(o)
	return nil
}

// countRelease counts a release that Redis has not seen. Once the slot is gone it has, and only the mark in Postgres is late.
func (b *books) countRelease(o LedgerOrder) {
	if b.slots[o.UserID].OrderID == o.OrderID {
		b.releasing += int64(o.Quantity)
		b.matched[o.UserID] = true
	}
}

func (b *books) close(saleID string, after partitionCounters, ledger Ledger) sight {
	// Accepted during the look: not of this report. Later than even the last count, Redis has lost it or never counted it.
	meanwhile := func(p Partition, sequence int64) bool {
		return b.isLater(p, sequence) && sequence <= after[p].accepted
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
	var strays []strayBuyer
	for id, e := range b.events {
		if _, persisted := ledger.Known[id]; persisted || meanwhile(e.Partition, e.Sequence) {
			continue
		}
		inFlight += int64(e.Quantity)
		b.match(e.UserID, id)
	}
	for user, slot := range b.slots {
		if meanwhile(slot.partition, slot.Sequence) {
			continue
		}
		buyers++
		if !b.matched[user] {
			strays = append(strays, strayBuyer{user, slot})
		}
	}
	redis := b.before.sum()
	r := &AuditReport{
		SaleID: saleID, Total: ledger.Total, Stock: redis.stock, Live: b.units, InFlight: inFlight, Unapplied: b.releasing,
		Drift:  ledger.Total - redis.stock - b.units - inFlight - b.releasing,
		Orders: ledger.Orders, Accepted: redis.accepted, Buyers: buyers,
		StrayBuyers: int64(len(strays)), LostBuyers: b.lost, Exact: b.before.onlyAccepts(after),
		Rejected: ledger.ByStatus[StatusRejected], Letters: ledger.Letters, AcceptsLost: ledger.Lost, Rebuilds: ledger.Rebuilds,
	}
	return sight{report: r, strays: strays, repairable: r.find(redis, ledger)}
}

// find says what is wrong, and whether any of it is wrong in Redis, where it can be mended. A disturbed look says only what one
// store alone proves.
func (r *AuditReport) find(redis saleCounters, ledger Ledger) (repairable bool) {
	found := func(inRedis, broken bool, format string, args ...any) {
		if broken {
			r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
			repairable = repairable || inRedis
		}
	}
	found(true, r.Exact && r.Drift > 0, "%d units are missing: neither in stock nor in an order", r.Drift)
	found(true, r.Exact && r.Drift < 0, "%d units are sold twice", -r.Drift)
	found(true, redis.stock < 0, "the stock in Redis is %d", redis.stock)
	found(false, ledger.LiveUnits > r.Total, "%d units are in live orders, of %d in all", ledger.LiveUnits, r.Total)
	found(false, ledger.Sold != ledger.LiveUnits, "Postgres counts %d units sold, its live orders hold %d", ledger.Sold, ledger.LiveUnits)
	found(true, r.Exact && redis.total != ledger.Total, "the total is %d in Redis and %d in Postgres", redis.total, ledger.Total)
	found(true, r.Exact && r.StrayBuyers != 0, "%d buyers are marked in Redis without an order", r.StrayBuyers)
	found(true, r.Exact && r.LostBuyers != 0, "%d orders have no buyer marked in Redis", r.LostBuyers)
	return repairable
}

// Notes say what was mended or refused in the sale's life. None of it is wrong now, and none of it is silent (I9).
func (r *AuditReport) Notes() []string {
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
