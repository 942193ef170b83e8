package pipeline

import (
	"time"
)

// Balance is what Postgres counts of a sale without reading its orders, all of it at one instant.
type Balance struct {
	Total, Sold, Version int64
	Withdrawn            int64               // units of returned orders that do not go on sale again
	Watermarks           map[Partition]int64 // highest accept persisted
	Unapplied            []LedgerOrder       // releases that are not marked as applied: order, buyer, units, partition
	Known                map[string]bool     // which of the given orders have a row
}

// LedgerOrder is what an audit needs to know of one order, or of one release: the accept it belongs to and its units.
type LedgerOrder struct {
	OrderID   string
	UserID    string
	Quantity  int // in a release: the units that go back into stock, 0 where they are withdrawn
	Partition Partition
	Sequence  int64       // of the accept that took the units
	Status    OrderStatus // of the order; empty in a release
	Number    int64       // of the order; 0 in a release
	// AcceptedAt is when Redis accepted the order; in a release, when it was written.
	AcceptedAt time.Time
	KeyHash    string // of the order's Idempotency-Key; empty where it had none, and in a release
}

// Ledger is what Postgres holds of one sale, all of it at one instant.
type Ledger struct {
	Total       int64                 // units for sale
	Sold        int64                 // the sale's counter of units in live orders
	Version     int64                 // of the sale's definition
	LiveUnits   int64                 // the same units, summed over the live orders themselves
	Withdrawn   map[Partition]int64   // units of returned orders that do not go on sale again
	Orders      int64                 // rows in any status
	ByStatus    map[OrderStatus]int64 // rows per status; a status without rows is absent
	ByPartition map[Partition]int64   // rows per partition, in any status
	Watermarks  map[Partition]int64   // highest sequence persisted
	Applied     map[Partition]int64   // releases that are marked as given back to Redis
	Letters     int64                 // dead letters of the sale that wait for an operator
	Lost        int64                 // accepts that rebuilds found lost
	LostOn      map[Partition]int64   // the same, per partition
	Rebuilds    int64                 // rebuilds of the sale, each with its line in the audit log
}
