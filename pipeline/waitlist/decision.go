package waitlist

import (
	"time"

	"sluice/lua"
	"sluice/pipeline"
)

// Result says what became of a request to wait. Every one is an expected outcome, none is an error.
type Result string

// The results.
const (
	Joined         = Result(lua.JoinJoined)         // the buyer waits, since now or since an earlier request
	AlreadyWaiting = Result(lua.JoinAlreadyWaiting) // for another number of units
	KeyReused      = Result(lua.JoinKeyReused)      // likewise, with the same idempotency key
	AlreadyOrdered = Result(lua.JoinAlreadyOrdered) // the buyer has an order
	Ended          = Result(lua.JoinEnded)          // with this idempotency key it had one, which has ended
	NoWaitlist     = Result(lua.JoinNoWaitlist)     // the sale has none
	NotOpen        = Result(lua.JoinNotOpen)        // before the window
	Closed         = Result(lua.JoinClosed)         // after the window, or closed by an operator
	Paused         = Result(lua.JoinPaused)         // paused by an operator
	OverLimit      = Result(lua.JoinOverLimit)      // more units than one order may have, or than the sale has
	OverGroupLimit = Result(lua.JoinOverGroupLimit) // more than a buyer may have in the sales of a group
	Available      = Result(lua.JoinAvailable)      // so many units are free, and nobody waits
	Full           = Result(lua.JoinFull)           // as many people wait as the sale allows
)

// Decision is the answer to a request to wait.
type Decision struct {
	Result      Result
	Entry       pipeline.WaitlistEntry // of a buyer who waits
	Position    int64                  // from 1: how many are served before, plus one
	OrderID     string                 // of the buyer's order, where there is one
	OpensAt     time.Time              // the window by which Redis decided
	MaxQuantity int
	Held        int64 // with OverGroupLimit: units that the buyer has, or waits for, in the other sales of the group
}

// Standing is the state of a buyer who has joined a waitlist: the entry, and the position in the list or that the order
// is made.
type Standing struct {
	Entry    pipeline.WaitlistEntry
	Position int64 // from 1; 0 once the order is made
	Ordered  bool  // the buyer's turn has come: the order of the entry exists
}
