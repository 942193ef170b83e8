package pipeline

import "time"

// The types that cross the boundary to Postgres. The interfaces are declared in the packages that use them; package db
// implements them all.

// SalesFilter chooses sales. The zero value means all of them, from the first id on.
type SalesFilter struct {
	// UpdatedSince leaves out sales whose definition did not change at or after it; zero leaves out none. A change
	// becomes visible at its commit, a little after its timestamp: poll with some seconds of overlap.
	UpdatedSince time.Time
	After        string // only sales with a greater id: the last one of the page before
	Limit        int    // the most sales to return; 0 or more than the store's own limit means that limit
}

// SaleChange is what an operator changes about a sale. A zero or nil field changes nothing.
type SaleChange struct {
	AddStock int64 // units; never negative, because units that were taken in Redis can't be taken back here
	OpensAt  *time.Time
	ClosesAt *time.Time
	State    *SaleState

	Title       *string
	MaxQuantity *int
	Waitlist    *int64 // not to 0 where the sale has a waitlist: buyers wait
	UnitPrice   *int64 // of orders from a moment later on; not to 0
	Currency    *string
	Note        *string // also of a sale that is closed
	EntryTicket *bool
	EntrySpread *time.Duration

	// IfVersion refuses the change unless the sale is at this version, or is what the change would make of it; 0: any.
	IfVersion int64
}

// MaxPersistBatch is the most events that one transaction may persist. More would not be faster (500 are near the
// best), and would lock the sale's row longer than the other workers' deadlines allow.
const MaxPersistBatch = 2000

// PersistOutcome says what became of one event in Postgres. All of them are expected; none is an error.
type PersistOutcome string

// The outcomes. After the first two the order stands and the event is done. The others are accepts that did not become
// a row of their own: before such an event is settled, its units must be given back or its order rejected.
const (
	PersistInserted       PersistOutcome = "inserted"        // a new row, counted in the sale's sold units
	PersistRedelivered    PersistOutcome = "redelivered"     // the order stands since an earlier delivery or accept of it
	PersistResubmitted    PersistOutcome = "readmitted"      // another accept of an ended order: its units must go back
	PersistBuyerConflict  PersistOutcome = "buyer-conflict"  // another order of that buyer is live in the sale
	PersistNumberConflict PersistOutcome = "number-conflict" // another order has that number
	PersistUnknownSale    PersistOutcome = "unknown-sale"    // Postgres has no such sale
	PersistOverLimit      PersistOutcome = "over-limit"      // more units than the sale allows in one order: no script wrote that
)
