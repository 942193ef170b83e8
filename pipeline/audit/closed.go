package audit

import (
	"cmp"
	"context"
	"slices"

	"sluice/pipeline"
	"sluice/pipeline/redisstore"
)

// ClosedSource is where an audit reads the books of a sale that is over.
type ClosedSource interface {
	// ClosedBooks reads what Postgres alone says of a sale, at one instant.
	ClosedBooks(ctx context.Context, saleID string) (ClosedBooks, error)
}

// ClosedBooks are what Postgres alone says of a sale, all of it at one instant. Counts are of orders, unless they say
// otherwise. The counts from Twice on are of what is wrong.
type ClosedBooks struct {
	Over   bool // a day has passed since the last order could be paid: Redis need not have the sale any more
	Ledger pipeline.Ledger
	// Units that returns withdrew, by the sale's own counter and by the releases of these returns. The third count is in
	// the ledger, by partition.
	Withdrawn, WithdrawnReleases int64
	Sequences                    []Sequences

	NumbersTwice      int64 // with a number that another one of the sale has
	BuyersTwice       int64 // live, of a buyer who has another live one
	Misplaced         int64 // on a partition that is none of the sale's
	Jumped            int64 // whose status can't be reached by as few changes as they have undergone
	LiveReleased      int64 // live, and given back all the same
	NeverReleased     int64 // that have ended, and owe their units to this day: no release says so
	OtherReleases     int64 // whose release is of other units, another buyer or another partition
	OrphanedReleases  int64 // releases of orders that have no row
	WithoutPayment    int64 // paid, returned or refunded, without a payment that says so
	PaymentsElsewhere int64 // paid by a payment that they don't name

	// Of orders that were dropped, by how much their sums contradict each other.
	DroppedOrders   int64 // orders, by their status and by their accepts
	DroppedUnits    int64 // units of orders that had ended, and of their releases
	DroppedPayments int64 // payments, and the orders that were paid by them
}

// Sequences are the accepts of a sale on a partition. Each took the next number of one counter, and ended as one row:
// so there is a row for each number up to the watermark.
type Sequences struct {
	Partition pipeline.Partition
	Missing   int64 // numbers up to the watermark that neither a row nor a release has
	// Explained is how many of them may be missing: accepts that Redis lost, as rebuilds have counted them, and those that
	// are dead letters without a row.
	Explained int64
	Twice     int64 // rows whose number another row has
	Beyond    int64 // rows whose number is greater than the watermark, which is raised with them
}

// lookAtClosed looks at a sale that Redis does not have, which why says. Where it is over, Postgres alone tells whether
// its books are right; otherwise it is lost, and why is returned. The stream is read first: an event that a worker
// persists meanwhile is then seen.
func (a *Auditor) lookAtClosed(ctx context.Context, sale *pipeline.Sale, why error) (*sighting, error) {
	witnesses, err := a.witnesses(ctx, sale)
	if err != nil {
		return nil, err
	}
	l := &look{Auditor: a, sale: sale, told: ordersOf(witnesses)}
	inFlight, err := l.stranded(ctx)
	if err != nil {
		return nil, err
	}
	b, err := a.ledger.ClosedBooks(ctx, sale.ID)
	switch {
	case err != nil:
		return nil, err
	case !b.Over:
		return nil, why
	}
	if err := l.lostBy(ctx, witnesses); err != nil {
		return nil, err
	}
	r := b.report(sale.ID)
	for _, e := range inFlight {
		r.InFlight += int64(e.Quantity)
	}
	r.Exact = len(inFlight) == 0
	r.checkSold(&b.Ledger)
	b.check(r, inFlight)
	r.checkReceipts(witnesses)
	return &sighting{report: r, look: l}, nil
}

// stranded are the sale's events of which Postgres has nothing yet: a worker persists them, although the sale is gone.
func (l *look) stranded(ctx context.Context) ([]pipeline.Event, error) {
	var events []pipeline.Event
	for _, p := range l.sale.Partitions {
		err := redisstore.EachEvent(ctx, l.rdb, l.keys, p, func(e pipeline.Event) bool {
			if _, told := l.told[e.OrderID]; told {
				l.told[e.OrderID] = true
			}
			if e.SaleID == l.sale.ID {
				events = append(events, e)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	unsettled := map[string]bool{}
	for chunk := range slices.Chunk(events, recheckChunk) {
		keys := make([]pipeline.OrderKey, len(chunk))
		for i := range chunk {
			keys[i] = pipeline.OrderKey{SaleID: chunk[i].SaleID, OrderID: chunk[i].OrderID}
		}
		left, err := l.ledger.UnsettledOrders(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, o := range left {
			unsettled[o.OrderID] = true
		}
	}
	return slices.DeleteFunc(events, func(e pipeline.Event) bool { return !unsettled[e.OrderID] }), nil
}

// report is what closed books say.
func (b *ClosedBooks) report(saleID string) *Report {
	l := &b.Ledger
	r := &Report{
		SaleID: saleID, PostgresAlone: true, Total: l.Total, Live: l.LiveUnits, Withdrawn: b.Withdrawn,
		Stock: l.Total - l.LiveUnits - b.Withdrawn, Orders: l.Orders, Rejected: l.ByStatus[pipeline.StatusRejected],
		Letters: l.Letters, AcceptsLost: l.Lost, Rebuilds: l.Rebuilds,
	}
	for _, sequence := range l.Watermarks {
		r.Accepted += sequence
	}
	return r
}

// check adds what closed books contradict themselves in. The numbers of events in flight have no row yet.
func (b *ClosedBooks) check(r *Report, inFlight []pipeline.Event) {
	under := map[pipeline.Partition]int64{}
	for _, e := range inFlight {
		under[e.Partition]++
	}
	var missing, twice, beyond int64
	for _, s := range b.Sequences {
		missing += max(0, s.Missing-s.Explained-under[s.Partition])
		twice, beyond = twice+s.Twice, beyond+s.Beyond
	}
	var withdrawn int64
	for _, units := range b.Ledger.Withdrawn {
		withdrawn += units
	}
	r.find(missing > 0, "%d accepts have no order", missing)
	r.find(twice > 0, "%d orders share their accept with another one", twice)
	r.find(beyond > 0, "%d orders are of accepts that were never counted", beyond)
	r.find(cmp.Or(b.Withdrawn-withdrawn, b.Withdrawn-b.WithdrawnReleases) != 0,
		"the sale counts %d units withdrawn, its partitions %d and its releases %d", b.Withdrawn, withdrawn,
		b.WithdrawnReleases)
	for _, wrong := range []struct {
		count int64
		what  string
	}{
		{b.NumbersTwice, "%d orders have a number that another one has"},
		{b.BuyersTwice, "%d live orders are of a buyer who has another one"},
		{b.Misplaced, "%d orders are on a partition that the sale is not on"},
		{b.Jumped, "%d orders have a status that their changes don't lead to"},
		{b.LiveReleased, "%d live orders were given back"},
		{b.NeverReleased, "%d orders have ended without a release"},
		{b.OtherReleases, "%d orders have a release of other units, or of another buyer"},
		{b.OrphanedReleases, "%d releases are of orders that don't exist"},
		{b.WithoutPayment, "%d orders lack the payment that their status needs"},
		{b.PaymentsElsewhere, "%d orders name a payment that is not theirs"},
		{b.DroppedOrders, "the sums of the orders that were dropped are off by %d accepts"},
		{b.DroppedUnits, "the sums of the orders that were dropped are off by %d units that they gave back"},
		{b.DroppedPayments, "the sums of the payments that were dropped are off by %d of paid orders"},
	} {
		r.find(wrong.count > 0, wrong.what, wrong.count)
	}
}
