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
// zero and empty.
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
	Exact       bool  // nothing was accepted or released while the audit looked
	Findings    []string
}

// Clean reports whether the sale's books are balanced.
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

// Audit compares a sale's Redis with its Postgres. It looks again until nothing was accepted or released during a look; then
// the report is exact, even though workers go on persisting. A sale that moves all the time gets an inexact report.
// Errors: KindUnavailable, KindNotLoaded.
func (a *Auditor) Audit(ctx context.Context, sale *Sale) (*AuditReport, error) {
	var report *AuditReport
	for look := range auditLooks {
		if look > 0 {
			sleep(ctx, auditPause)
		}
		var err error
		if report, err = a.look(ctx, sale); err != nil {
			return nil, err
		}
		// A finding in an exact look can only be a release between its two steps; it has passed a moment later.
		if report.Exact && report.Clean() || ctx.Err() != nil {
			break
		}
	}
	return report, nil
}

// look reads in the order in which an order travels: slots, stream, Postgres. An event that a worker persists meanwhile is
// then seen in both places, and counted once, by its order id; it is never missed.
func (a *Auditor) look(ctx context.Context, sale *Sale) (*AuditReport, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	before, err := a.counters(ctx, sale)
	if err != nil {
		return nil, err
	}
	slots, err := a.slots(ctx, sale)
	if err != nil {
		return nil, err
	}
	events, err := a.events(ctx, sale)
	if err != nil {
		return nil, err
	}
	books := newBooks(slots, events)
	ledger, err := a.ledger.Ledger(ctx, sale.ID, slices.Collect(maps.Keys(events)), books.live, books.unapplied)
	if err != nil {
		return nil, err
	}
	after, err := a.counters(ctx, sale)
	if err != nil {
		return nil, err
	}
	report := books.close(sale.ID, before, ledger)
	report.Exact = before == after
	return report, nil
}

// saleCounters is what Redis counts of a sale, summed over its partitions.
type saleCounters struct{ stock, total, accepted, released, version int64 }

func (a *Auditor) counters(ctx context.Context, sale *Sale) (saleCounters, error) {
	var sum saleCounters
	for _, p := range sale.Partitions {
		values, err := a.rdb.HMGet(ctx, a.keys.Sale(p, sale.ID), "stock", "total", "accepted", "released", "version").Result()
		if err != nil {
			return sum, Wrap(KindUnavailable, err, "Redis did not tell the sale's counters")
		}
		for i, into := range []*int64{&sum.stock, &sum.total, &sum.accepted, &sum.released, &sum.version} {
			text, ok := values[i].(string)
			if !ok {
				return sum, Errorf(KindNotLoaded, "Redis does not hold sale %s on partition %s", sale.ID, p)
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return sum, Wrap(KindUnavailable, err, "Redis holds a counter that is not a number")
			}
			*into += n
		}
	}
	return sum, nil
}

// slots reads who holds a slot: user id → slot.
func (a *Auditor) slots(ctx context.Context, sale *Sale) (map[string]lua.Slot, error) {
	slots := map[string]lua.Slot{}
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
				slots[page[i]] = slot
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
		from := "-"
		for {
			page, err := a.rdb.XRangeN(ctx, a.keys.Orders(p), from, "+", auditScanCount).Result()
			if err != nil {
				return nil, Wrap(KindUnavailable, err, "Redis did not list the order events")
			}
			for _, m := range page {
				if e, err := DecodeEvent(p, m.ID, m.Values); err == nil && e.SaleID == sale.ID {
					events[e.OrderID] = e
				}
			}
			if len(page) < auditScanCount {
				break
			}
			from = "(" + page[len(page)-1].ID
		}
	}
	return events, nil
}

// books takes one sale's numbers together.
type books struct {
	slots     map[string]lua.Slot
	events    map[string]Event
	matched   map[string]bool // users whose slot is accounted for
	units     int64           // live in Postgres
	releasing int64           // released in Postgres, and the slot is still there
	lost      int64
}

func newBooks(slots map[string]lua.Slot, events map[string]Event) *books {
	return &books{slots: slots, events: events, matched: make(map[string]bool, len(slots))}
}

func (b *books) live(o LedgerOrder) error {
	b.units += int64(o.Quantity)
	if b.slots[o.UserID].OrderID == o.OrderID {
		b.matched[o.UserID] = true
	} else {
		b.lost++
	}
	return nil
}

// unapplied counts a release that Redis has not seen. Once the slot is gone it has, and only the mark in Postgres is late.
func (b *books) unapplied(o LedgerOrder) error {
	if b.slots[o.UserID].OrderID == o.OrderID {
		b.releasing += int64(o.Quantity)
		b.matched[o.UserID] = true
	}
	return nil
}

func (b *books) close(saleID string, redis saleCounters, ledger Ledger) *AuditReport {
	var inFlight int64
	for id, e := range b.events {
		if _, persisted := ledger.Known[id]; persisted {
			continue
		}
		inFlight += int64(e.Quantity)
		if b.slots[e.UserID].OrderID == id {
			b.matched[e.UserID] = true
		} else {
			b.lost++
		}
	}
	r := &AuditReport{
		SaleID: saleID, Total: ledger.Total, Stock: redis.stock, Live: b.units, InFlight: inFlight, Unapplied: b.releasing,
		Drift:  ledger.Total - redis.stock - b.units - inFlight - b.releasing,
		Orders: ledger.Orders, Accepted: redis.accepted, Buyers: int64(len(b.slots)),
		StrayBuyers: int64(len(b.slots) - len(b.matched)), LostBuyers: b.lost,
	}
	found := func(broken bool, format string, args ...any) {
		if broken {
			r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
		}
	}
	found(r.Drift > 0, "%d units are missing: neither in stock nor in an order", r.Drift)
	found(r.Drift < 0, "%d units are sold twice", -r.Drift)
	found(redis.stock < 0, "the stock in Redis is %d", redis.stock)
	found(r.Live > r.Total, "%d units are in live orders, of %d in all", r.Live, r.Total)
	found(ledger.Sold != r.Live, "Postgres counts %d units sold, its live orders hold %d", ledger.Sold, r.Live)
	found(redis.total != ledger.Total, "the total is %d in Redis and %d in Postgres", redis.total, ledger.Total)
	found(r.StrayBuyers != 0, "%d buyers are marked in Redis without an order", r.StrayBuyers)
	found(r.LostBuyers != 0, "%d orders have no buyer marked in Redis", r.LostBuyers)
	return r
}
