package audit

import "sluice/pipeline"

// books adds up one sale's numbers, up to the accepts that Redis had counted when the look began.
type books struct {
	before    PartitionCounters
	slots     map[string]placedSlot
	events    map[string]pipeline.Event
	matched   map[string]bool // users whose slot is accounted for
	units     int64           // live in Postgres
	releasing int64           // released in Postgres, and the slot is still there
	lost      int64
	// What Postgres has of later accepts: close decides whether they were accepted during the look, or lost by Redis.
	laterLive, laterReleases []pipeline.LedgerOrder
}

func newBooks(before PartitionCounters, slots map[string]placedSlot, events map[string]pipeline.Event) *books {
	return &books{before: before, slots: slots, events: events, matched: make(map[string]bool, len(slots))}
}

// isLater reports whether an accept was counted by Redis only after the look began.
func (b *books) isLater(p pipeline.Partition, sequence int64) bool {
	was, ok := b.before[p]
	return ok && sequence > was.Accepted
}

// live counts a live order, or keeps it for close.
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

// unapplied counts a release, or keeps it for close.
func (b *books) unapplied(o pipeline.LedgerOrder) error {
	if b.isLater(o.Partition, o.Sequence) {
		b.laterReleases = append(b.laterReleases, o)
		return nil
	}
	b.countRelease(o)
	return nil
}

// countRelease counts a release that Redis has not applied. Once the slot is gone it has, and only Postgres does not
// know yet.
func (b *books) countRelease(o pipeline.LedgerOrder) {
	if b.slots[o.UserID].OrderID == o.OrderID {
		b.releasing += int64(o.Quantity)
		b.matched[o.UserID] = true
	}
}

// close compares the books with the counters after the look, and returns the result.
func (b *books) close(saleID string, after PartitionCounters, ledger pipeline.Ledger) Inspection {
	// An accept during the look is not part of this report. One later than even the last count was lost by Redis, or never
	// counted by it.
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
	var withdrawn int64
	for _, units := range ledger.Withdrawn {
		withdrawn += units
	}
	r := &Report{
		SaleID: saleID, Total: ledger.Total, Stock: redis.Stock, Live: b.units, InFlight: inFlight, Unapplied: b.releasing,
		Withdrawn: withdrawn, Drift: ledger.Total - redis.Stock - b.units - inFlight - b.releasing - withdrawn,
		Orders: ledger.Orders, Accepted: redis.Accepted, Buyers: buyers,
		StrayBuyers: int64(len(strays)), LostBuyers: b.lost, Exact: b.before.onlyAccepts(after),
		Rejected: ledger.ByStatus[pipeline.StatusRejected], Letters: ledger.Letters,
		AcceptsLost: ledger.Lost, Rebuilds: ledger.Rebuilds,
	}
	return Inspection{Report: r, Strays: strays, Repairable: r.check(redis, ledger)}
}
