package audit

import (
	"context"
	"fmt"
	"slices"

	"sluice/pipeline"
)

// recheckChunk is how many orders Postgres is asked about at once: one look-up in an index for each.
const recheckChunk = 1000

// WitnessSource is where an audit learns what buyers were told.
type WitnessSource interface {
	// Witnesses returns what accept journals have reported that Postgres should have by now, of one sale.
	Witnesses(ctx context.Context, saleID string) ([]Witness, error)
	// UnsettledOrders returns those of the orders that Postgres has nothing of: neither a row, in any status, nor a dead
	// letter.
	UnsettledOrders(ctx context.Context, orders []pipeline.OrderKey) ([]pipeline.OrderKey, error)
}

// Witness is an accept journal, which knows receipts that buyers were given whatever became of both stores.
type Witness struct {
	JournalID, Host string              // where an api has reported it
	File            string              // where it was read from a file
	Orders          []pipeline.OrderKey // that Postgres did not have when they were written down
	Unlisted        int64               // more of them, of any sale, which it may have by now
}

// where says where the receipts are, and how they come back.
func (w *Witness) where() string {
	if w.File != "" {
		return fmt.Sprintf("the accept journal %s has them; run sluice journal replay --apply %s", w.File, w.File)
	}
	return fmt.Sprintf("the accept journal %s on %s has them; run sluice journal replay --apply FILE... there, "+
		"with the files that sluice journal ls shows of it", w.JournalID, w.Host)
}

// With returns an Auditor that also believes some witnesses that no api reports. What they have must have been accepted
// before an audit begins.
func (a *Auditor) With(more ...Witness) *Auditor {
	with := *a
	with.more = slices.Concat(a.more, more)
	return &with
}

// witnesses returns what is known of a sale's receipts.
//
// An audit reads it before everything else. So each of these orders was accepted before the look at slots and stream
// began, whatever any clock says, and however long the look takes. Then the rule of look holds: what is not in the
// stream any more was persisted or buried before that, and is found in Postgres, which is asked afterwards. Read last,
// the witnesses would also name orders that were accepted during the look, and lay in the stream behind its back.
func (a *Auditor) witnesses(ctx context.Context, sale *pipeline.Sale) ([]Witness, error) {
	witnesses, err := a.ledger.Witnesses(ctx, sale.ID)
	if err != nil {
		return nil, err
	}
	for _, w := range a.more {
		w.Orders = slices.DeleteFunc(slices.Clone(w.Orders), func(o pipeline.OrderKey) bool { return o.SaleID != sale.ID })
		witnesses = append(witnesses, w)
	}
	return witnesses, nil
}

// ordersOf returns the orders that some witnesses know; none of them was seen yet.
func ordersOf(witnesses []Witness) map[string]bool {
	told := map[string]bool{}
	for i := range witnesses {
		for _, o := range witnesses[i].Orders {
			told[o.OrderID] = false
		}
	}
	return told
}

// lostBy leaves to each witness the orders that neither store has: they are in no event and no slot that were seen, and
// Postgres has neither a row nor a letter. An order of which only the slot is left is a stray buyer, and is repaired as
// one.
func (l *look) lostBy(ctx context.Context, witnesses []Witness) error {
	for i := range witnesses {
		w := &witnesses[i]
		w.Orders = slices.DeleteFunc(w.Orders, func(o pipeline.OrderKey) bool { return l.told[o.OrderID] })
		var lost []pipeline.OrderKey
		for chunk := range slices.Chunk(w.Orders, recheckChunk) {
			unsettled, err := l.ledger.UnsettledOrders(ctx, chunk)
			if err != nil {
				return err
			}
			lost = append(lost, unsettled...)
		}
		w.Orders = lost
	}
	return nil
}

// checkReceipts adds the receipts that were lost to the findings. It needs no exact look: nothing that is released or
// changed takes a receipt out of both stores.
func (r *Report) checkReceipts(witnesses []Witness) {
	lost := map[string]bool{} // two witnesses may have one order
	for i := range witnesses {
		w := &witnesses[i]
		r.UncheckedReceipts += w.Unlisted
		if len(w.Orders) == 0 {
			continue
		}
		for _, o := range w.Orders {
			lost[o.OrderID] = true
		}
		r.Findings = append(r.Findings, fmt.Sprintf(
			"%d receipts that buyers hold are in neither store: %s", len(w.Orders), w.where()))
	}
	r.LostReceipts = int64(len(lost))
}
