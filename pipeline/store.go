package pipeline

import "time"

// The types that cross the boundary to Postgres. The interfaces themselves stand beside the stages that use them;
// package db implements them all.

// SalesFilter chooses sales. The zero value means all of them, from the first id on.
type SalesFilter struct {
	// UpdatedSince leaves out sales whose definition did not change at or after it; zero leaves out none. A change
	// becomes visible at its commit, a little after its time: whoever polls asks with some seconds of overlap.
	UpdatedSince time.Time
	After        string // only sales with a greater id: the last one of the page before
	Limit        int    // at most so many; 0 or more than the store's own limit means that limit
}

// SaleChange is what an operator changes about a sale. A zero or nil field leaves things as they are.
type SaleChange struct {
	AddStock int64 // units; never negative, because units that were taken in Redis can't be taken back here
	OpensAt  *time.Time
	ClosesAt *time.Time
	State    *SaleState
}

// MaxPersistBatch is the most events that one transaction may persist. More would not be faster (500 are near the best),
// and would hold the sale's row longer than the other workers' deadlines allow.
const MaxPersistBatch = 2000

// PersistOutcome says what became of one event in Postgres. All of them are expected; none is an error.
type PersistOutcome string

// The outcomes. After the first two the order stands and the event is done. The others are accepts that did not become
// a row of their own: whoever settles such an event must first give its units back or reject its order.
const (
	PersistInserted       PersistOutcome = "inserted"        // a new row, counted in the sale's sold units
	PersistRedelivered    PersistOutcome = "redelivered"     // the order stands since an earlier delivery, of this accept or another one
	PersistResubmitted    PersistOutcome = "readmitted"      // the order has ended, and this is another accept of it: its units must go back
	PersistBuyerConflict  PersistOutcome = "buyer-conflict"  // another order of that buyer is live in the sale
	PersistNumberConflict PersistOutcome = "number-conflict" // another order has that number
	PersistUnknownSale    PersistOutcome = "unknown-sale"    // Postgres has no such sale
)
