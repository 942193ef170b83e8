package recovery

import (
	"context"
	"slices"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/moves"
	"sluice/pipeline/redisstore"
)

// collected is what a sale on a partition must be, according to Postgres and the stream.
type collected struct {
	stock, live, inFlight, slots, accepted, missing int64
	waiting, tickets                                int64
	moves                                           moves.Standing
}

func (c collected) report(l loss, cause string) pipeline.RebuildReport {
	return pipeline.RebuildReport{
		SaleID: l.watermark.SaleID, Partition: l.watermark.Partition, Cause: cause, Reason: l.why,
		StockBefore: l.state.Stock, StockAfter: c.stock, AcceptedBefore: l.state.Accepted, AcceptedAfter: c.accepted,
		Live: c.live, InFlight: c.inFlight, Slots: c.slots, Missing: c.missing, Waiting: c.waiting,
	}
}

// slotTaker receives every buyer's slot once.
type slotTaker interface {
	take(ctx context.Context, userID string, slot lua.Slot) error
}

// settleMoves returns the units of a sale that were moved to and from the partition.
type settleMoves func(context.Context, *pipeline.Sale) (moves.Standing, error)

// settleMoves decides what becomes of the moves that concern a partition which is closed, to be rebuilt.
func (r *round) settleMoves(p pipeline.Partition) settleMoves {
	return func(ctx context.Context, sale *pipeline.Sale) (moves.Standing, error) {
		if len(sale.Partitions) == 1 {
			return moves.Standing{}, nil
		}
		return r.Store.SettleMoves(ctx, r.generation, pipeline.SalePartition{SaleID: sale.ID, Partition: p})
	}
}

// knownMoves is for a look that changes nothing: what Redis says of moves.
func knownMoves(l loss) settleMoves {
	return func(context.Context, *pipeline.Sale) (moves.Standing, error) {
		return moves.Standing{
			MovedIn: max(l.state.MovedIn, l.watermark.MovedIn), MovedOut: max(l.state.MovedOut, l.watermark.MovedOut),
		}, nil
	}
}

// collect finds out which buyers have a slot of a sale, who waits for it, and what is left of it. The live orders come
// first; an event in the stream gets a slot where its order has no row and its buyer no other order: only those hold
// units.
func (v *Verifier) collect(
	ctx context.Context, l loss, events []pipeline.Event, slots slotTaker, waitlist entryTaker, settle settleMoves,
) (*pipeline.Sale, collected, error) {
	p := l.watermark.Partition
	sale, err := v.Store.Sale(ctx, l.watermark.SaleID)
	if err != nil {
		return nil, collected{}, err
	}
	c := collected{accepted: max(l.state.Accepted, l.watermark.Accepted)}
	if c.moves, err = settle(ctx, sale); err != nil {
		return nil, c, err
	}
	ids, buyers, known := make([]string, len(events)), map[string]bool{}, map[string]bool{}
	for i, e := range events {
		ids[i] = e.OrderID
		buyers[e.UserID] = false
		c.accepted = max(c.accepted, e.Sequence)
	}
	var units int64
	note := func(o pipeline.LedgerOrder) error {
		known[o.OrderID] = true
		return nil
	}
	ledger, err := v.Store.Ledger(ctx, sale.ID, slices.Values(ids), note, func(o pipeline.LedgerOrder) error {
		if o.Partition != p {
			return nil
		}
		if _, waits := buyers[o.UserID]; waits {
			buyers[o.UserID] = true
		}
		c.live++
		units += int64(o.Quantity)
		return slots.take(ctx, o.UserID, slotOfOrder(&o))
	}, nil)
	if err != nil {
		return nil, c, err
	}
	for _, e := range events {
		if known[e.OrderID] || buyers[e.UserID] {
			continue
		}
		buyers[e.UserID] = true
		c.inFlight++
		units += int64(e.Quantity)
		if err := slots.take(ctx, e.UserID, slotOfEvent(&e)); err != nil {
			return nil, c, err
		}
	}
	c.slots = c.live + c.inFlight
	c.accepted = max(c.accepted, ledger.Watermarks[p])
	c.missing = max(0, c.accepted-ledger.ByPartition[p]-c.inFlight-l.watermark.Lost)
	c.stock = sale.ShareOf(p, sale.Total) + c.moves.MovedIn - c.moves.MovedOut - units - ledger.Withdrawn[p]
	err = v.collectWaitlist(ctx, l, events, buyers, &c, waitlist)
	return sale, c, err
}

func slotOfOrder(o *pipeline.LedgerOrder) lua.Slot {
	return lua.Slot{
		OrderID: o.OrderID, Quantity: o.Quantity, Number: o.Number,
		AcceptedMS: o.AcceptedAt.UnixMilli(), Sequence: o.Sequence,
		KeyHash: o.KeyHash, PayloadHash: redisstore.PayloadHash(o.KeyHash, o.Quantity),
	}
}

func slotOfEvent(e *pipeline.Event) lua.Slot {
	return lua.Slot{
		OrderID: e.OrderID, Quantity: e.Quantity, Number: e.Number,
		AcceptedMS: e.AcceptedAt.UnixMilli(), Sequence: e.Sequence,
		KeyHash: e.KeyHash, PayloadHash: redisstore.PayloadHash(e.KeyHash, e.Quantity),
	}
}
