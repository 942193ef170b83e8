package audit

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// readTimeout bounds one reading of one sale. Ten million orders take a minute, and several on a busy machine.
const readTimeout = 15 * time.Minute

// look is one look at one sale.
//
// Both stores are read once, and compared by sums of fingerprints (see survey). Where the sums of some buckets differ,
// both are read again, and the slots and orders of those buckets are compared one by one. So its memory does not grow
// with the sale, but with what is in flight: 80 bytes for each event in the stream.
type look struct {
	*Auditor
	sale   *pipeline.Sale
	keep   bool // the fingerprints of stray buyers, not only their number
	before PartitionCounters
	prints *fingerprints
	// told are the orders that witnesses know, and whether they were seen in a slot or in the stream.
	told map[string]bool
	pace pace
}

// look reads in the order in which an order travels: slots, stream, Postgres. An event that a worker persists meanwhile
// is then seen in both places, and counted once, by its order id; it is never missed. Stock and accepts are read
// together, and before them: all three are counted up to that instant, also when they are read again. What buyers were
// told is read before everything else (see witnesses), and compared with everything else.
func (a *Auditor) look(ctx context.Context, sale *pipeline.Sale, strays bool) (*sighting, error) {
	witnesses, err := a.witnesses(ctx, sale)
	if err != nil {
		return nil, err
	}
	l := &look{Auditor: a, sale: sale, keep: strays, prints: newFingerprints(), told: ordersOf(witnesses)}
	if l.before, err = a.Counters(ctx, sale); err != nil {
		return nil, err
	}
	l.pace = newPace(l.before)
	sums := &survey{}
	books, ledger, err := l.read(ctx, sums)
	if err != nil {
		return nil, err
	}
	found, err := l.compare(ctx, sums, books.latest)
	if err != nil {
		return nil, err
	}
	waitlists, err := l.waitlists(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.lostBy(ctx, witnesses); err != nil {
		return nil, err
	}
	seen := &sighting{report: books.report(sale.ID, ledger, found), look: l, strays: found.prints}
	seen.repairable = seen.report.check(l.before.sum(), ledger)
	seen.report.checkWaitlists(waitlists)
	seen.report.checkReceipts(witnesses)
	return seen, nil
}

// sighting is what one look has seen.
type sighting struct {
	report     *Report
	repairable bool
	look       *look
	strays     []fingerprint
}

// read reads both stores once.
func (l *look) read(ctx context.Context, compare comparison) (*books, pipeline.Ledger, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	recount := func(ctx context.Context) (PartitionCounters, error) { return l.Counters(ctx, l.sale) }
	b := newBooks(l.before, compare, recount)
	if err := l.slots(ctx, b); err != nil {
		return nil, pipeline.Ledger{}, err
	}
	if err := b.refresh(ctx); err != nil { // or else all events since the look began would be kept
		return nil, pipeline.Ledger{}, err
	}
	if err := l.events(ctx, b); err != nil {
		return nil, pipeline.Ledger{}, err
	}
	ledger, err := l.orders(ctx, b)
	if err != nil {
		return nil, pipeline.Ledger{}, err
	}
	return b, ledger, b.close(ctx)
}

// slots reads the slots of the sale's buyers.
func (l *look) slots(ctx context.Context, b *books) error {
	return l.eachSlot(ctx, func(p pipeline.Partition, userID string, slot lua.Slot) error {
		if _, told := l.told[slot.OrderID]; told {
			l.told[slot.OrderID] = true
		}
		return b.add(ctx, entry{
			kind: slotEntry, hash: l.prints.of(p, slot.OrderID, userID), partition: int16(p), sequence: slot.Sequence,
		})
	})
}

// eachSlot calls do for every slot of the sale, until it fails. One that can't be read has an order that nobody has.
func (l *look) eachSlot(
	ctx context.Context, do func(p pipeline.Partition, userID string, slot lua.Slot) error,
) error {
	for _, p := range l.sale.Partitions {
		var failed error
		at := pipeline.SalePartition{SaleID: l.sale.ID, Partition: p}
		err := redisstore.EachSlot(ctx, l.rdb, l.keys, at, func(userID string, slot lua.Slot, ok bool) bool {
			if !ok {
				slot = lua.Slot{OrderID: redisstore.Unreadable}
			}
			if failed = l.rest(ctx); failed == nil {
				failed = do(p, userID, slot)
			}
			return failed == nil
		})
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
	}
	return nil
}

// events reads the sale's events in the stream.
func (l *look) events(ctx context.Context, b *books) error {
	for _, p := range l.sale.Partitions {
		var failed error
		err := redisstore.EachEvent(ctx, l.rdb, l.keys, p, func(e pipeline.Event) bool {
			if e.SaleID == l.sale.ID {
				l.event(b, &e)
			}
			failed = l.rest(ctx)
			return failed == nil
		})
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) event(b *books, e *pipeline.Event) {
	if _, told := l.told[e.OrderID]; told {
		l.told[e.OrderID] = true
	}
	entry := entry{
		kind: eventEntry, hash: l.prints.of(e.Partition, e.OrderID, e.UserID), partition: int16(e.Partition),
		sequence: e.Sequence, quantity: int32(e.Quantity), //nolint:gosec // up to MaxQuantityLimit
	}
	if b.isMeanwhile(&entry) {
		return
	}
	b.events[uuid.MustParse(e.OrderID)] = entry // DecodeEvent takes nothing else
}

// orders reads Postgres, and the slots of releases that Redis may have applied.
func (l *look) orders(ctx context.Context, b *books) (pipeline.Ledger, error) {
	inFlight := func(yield func(string) bool) {
		for id := range b.events {
			if !yield(id.String()) {
				return
			}
		}
	}
	known := func(o pipeline.LedgerOrder) error {
		delete(b.events, uuid.MustParse(o.OrderID))
		return nil
	}
	live := func(o pipeline.LedgerOrder) error {
		if err := l.rest(ctx); err != nil {
			return err
		}
		return b.add(ctx, l.entryOf(liveEntry, &o))
	}
	r := releases{look: l, books: b}
	unapplied := func(o pipeline.LedgerOrder) error { return r.take(ctx, o) }
	ledger, err := l.ledger.Ledger(ctx, l.sale.ID, inFlight, known, live, unapplied)
	if err != nil {
		return ledger, err
	}
	return ledger, r.flush(ctx)
}

func (l *look) entryOf(k kind, o *pipeline.LedgerOrder) entry {
	return entry{
		kind: k, hash: l.prints.of(o.Partition, o.OrderID, o.UserID), partition: int16(o.Partition), sequence: o.Sequence,
		quantity: int32(o.Quantity), //nolint:gosec // up to MaxQuantityLimit
	}
}

// compared is the result of comparing slots and orders.
type compared struct {
	after  PartitionCounters // read last
	buyers int64             // slots
	lost   int64             // orders without a slot
	strays int64             // slots without an order
	prints []fingerprint     // the same, if they are to be kept
}

// compare has a closer look where the sums differ. A disturbed look proves nothing, and needs none.
func (l *look) compare(ctx context.Context, sums *survey, after PartitionCounters) (compared, error) {
	agreed, all := sums.agreed()
	if !l.before.onlyAccepts(after) {
		return compared{after: after, buyers: all}, nil
	}
	found := compared{after: after, buyers: agreed}
	for _, s := range sums.scrutinies(mostHeld) {
		b, _, err := l.read(ctx, s)
		if err != nil {
			return compared{}, err
		}
		slots, strays := s.result()
		found.after, found.buyers, found.lost = b.latest, found.buyers+slots, found.lost+s.lost
		if found.strays += int64(len(strays)); l.keep {
			found.prints = append(found.prints, strays...)
		}
		s.held = nil
	}
	return found, nil
}

// strayBuyers returns the slots with some fingerprints.
func (l *look) strayBuyers(ctx context.Context, strays []fingerprint) ([]StrayBuyer, error) {
	if len(strays) == 0 {
		return nil, nil
	}
	wanted := make(map[fingerprint]bool, len(strays))
	for _, f := range strays {
		wanted[f] = true
	}
	var found []StrayBuyer
	err := l.eachSlot(ctx, func(p pipeline.Partition, userID string, slot lua.Slot) error {
		if f := l.prints.of(p, slot.OrderID, userID); wanted[f] {
			found = append(found, StrayBuyer{userID, slot, p})
			delete(wanted, f) // it may come twice
		}
		return nil
	})
	return found, err
}

// report is what the books say.
func (b *books) report(saleID string, ledger pipeline.Ledger, found compared) *Report {
	redis := b.before.sum()
	var withdrawn int64
	for _, units := range ledger.Withdrawn {
		withdrawn += units
	}
	return &Report{
		SaleID: saleID, Total: ledger.Total, Stock: redis.Stock, Live: b.units, InFlight: b.inFlight, Unapplied: b.releasing,
		Withdrawn: withdrawn, Moving: redis.MovedOut - redis.MovedIn,
		Drift: ledger.Total - redis.Stock - b.units - b.inFlight - b.releasing - withdrawn -
			(redis.MovedOut - redis.MovedIn),
		Orders: ledger.Orders, Accepted: redis.Accepted, Buyers: found.buyers,
		StrayBuyers: found.strays, LostBuyers: found.lost, Exact: b.before.onlyAccepts(found.after),
		Rejected: ledger.ByStatus[pipeline.StatusRejected], Letters: ledger.Letters,
		AcceptsLost: ledger.Lost, Rebuilds: ledger.Rebuilds,
	}
}
