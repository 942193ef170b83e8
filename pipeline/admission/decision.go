package admission

import (
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// Receipt is what a buyer gets after an accept.
type Receipt struct {
	SaleID     string
	OrderID    string
	Number     int64
	Quantity   int
	Durability pipeline.Durability
	Journaled  bool      // it is on the disk of the api that answers as well
	AcceptedAt time.Time // by Redis' clock
}

// Result is the outcome of an order request. Every one is expected, none is an error.
type Result string

// The results.
const (
	Accepted       = Result(lua.AdmitAccepted)       // the order is accepted
	Replayed       = Result(lua.AdmitReplayed)       // it was, by a request with the same idempotency key and quantity
	AlreadyOrdered = Result(lua.AdmitAlreadyOrdered) // the buyer has another order
	KeyReused      = Result(lua.AdmitKeyReused)      // it has the same idempotency key and another quantity
	SoldOut        = Result(lua.AdmitSoldOut)        // fewer units left than asked for, or the waitlist comes first
	NotOpen        = Result(lua.AdmitNotOpen)        // before the window
	Closed         = Result(lua.AdmitClosed)         // after the window, or closed by an operator
	Paused         = Result(lua.AdmitPaused)         // paused by an operator
	OverLimit      = Result(lua.AdmitOverLimit)      // more units than the sale allows in one order
	OverGroupLimit = Result(lua.AdmitOverGroupLimit) // more than a buyer may have in the sales of a group
	BacklogFull    = Result(lua.AdmitBacklogFull)    // too many events wait for the workers; try again later
)

// Decision is the answer to an order request.
type Decision struct {
	Result      Result
	Receipt     Receipt   // of the accepted or replayed order; of the earlier one for already-ordered and key-reused
	OpensAt     time.Time // the window and limits that Redis decided by
	ClosesAt    time.Time
	MaxQuantity int
	Remaining   int64 // units left on the buyer's partition after the batch
	Held        int64 // with OverGroupLimit: units that the buyer has, or waits for, in the other sales of the group
}

// overMargin is how long after its window a sale that Redis does not have counts as over, and not as lost: no rebuild
// brings it back then (db.Watermarks), and no clock is wrong by as much.
const overMargin = 24 * time.Hour

// closedFor is the decision about a sale that is over, and no longer in Redis.
func closedFor(sale *pipeline.Sale) Decision {
	return Decision{Result: Closed, OpensAt: sale.OpensAt, ClosesAt: sale.ClosesAt, MaxQuantity: sale.MaxQuantity}
}

// receipted reports whether a buyer gets a receipt that states how durable the order is.
func receipted(code lua.AdmitCode) bool {
	return code == lua.AdmitAccepted || code == lua.AdmitReplayed || code == lua.AdmitEnded
}

// resultOf is the result of a decision. To the buyer, a receipt that is given once more is the same whatever became of
// the order.
func resultOf(code lua.AdmitCode) Result {
	if code == lua.AdmitEnded {
		return Replayed
	}
	return Result(code)
}

// deliver gives each request of a batch its outcome. It returns those whose accept is not confirmed as it must be.
func (g *gate) deliver(batch []*pendingRequest, made attempted) (unconfirmed []*pendingRequest) {
	reply, suffices := made.reply, g.controller.confirmer.suffices(made.level)
	g.note(reply)
	for i, pending := range batch {
		outcome := reply.Outcomes[i]
		if accept := receipted(outcome.Code); accept && !suffices ||
			!accept && pending.taken.Load() { // Redis had accepted it, and another process may still know of that
			if !pending.taken.Swap(true) {
				g.controller.metrics.unconfirmed.Inc()
			}
			unconfirmed = append(unconfirmed, pending)
			continue
		}
		switch outcome.Code { //nolint:exhaustive // the others are decisions
		case lua.AdmitNotLoaded:
			pending.answer <- answer{err: pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is not loaded yet", g.at.SaleID)}
			continue
		case lua.AdmitUntrusted:
			pending.answer <- answer{err: pipeline.Errorf(pipeline.KindNotLoaded, "sale %s is being verified after a restart",
				g.at.SaleID)}
			continue
		}
		pending.answer <- answer{decision: Decision{
			Result: resultOf(outcome.Code),
			Receipt: Receipt{
				SaleID: g.at.SaleID, OrderID: outcome.Slot.OrderID, Number: outcome.Slot.Number,
				Quantity: outcome.Slot.Quantity, Durability: made.level,
				Journaled:  made.journaled && outcome.Code != lua.AdmitEnded,
				AcceptedAt: time.UnixMilli(outcome.Slot.AcceptedMS).UTC(),
			},
			OpensAt: time.UnixMilli(reply.OpensMS).UTC(), ClosesAt: time.UnixMilli(reply.ClosesMS).UTC(),
			MaxQuantity: reply.MaxQuantity, Remaining: reply.Stock, Held: outcome.Held,
		}}
	}
	return unconfirmed
}
