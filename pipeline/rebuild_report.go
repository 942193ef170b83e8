package pipeline

// RebuildReport says in numbers what was wrong with a sale on a partition and what it was rebuilt from.
type RebuildReport struct {
	SaleID         string    `json:"sale_id"`
	Partition      Partition `json:"partition"`
	Cause          string    `json:"cause"`           // restart, watch (found while running), operator or repair
	Reason         string    `json:"reason"`          // absent, accepts, releases, waitlist, moves, drift (by an audit), or none
	StockBefore    int64     `json:"stock_before"`    // units; 0 where the sale was not in Redis
	StockAfter     int64     `json:"stock_after"`     // units; less than 0 where more is sold than there is
	AcceptedBefore int64     `json:"accepted_before"` // Redis' accept counter
	AcceptedAfter  int64     `json:"accepted_after"`
	Live           int64     `json:"live"`      // live orders in Postgres, whose slots were restored
	InFlight       int64     `json:"in_flight"` // orders that were found in the stream only
	Slots          int64     `json:"slots"`     // buyers with a slot now
	// Missing counts accepts that are neither in Postgres nor in the stream. The api processes that gave the receipts and
	// the workers that fetched the events submit them again, if they are still alive.
	Missing int64 `json:"missing"`
	Waiting int64 `json:"waiting"` // entries on the waitlist now
	// What the audit behind a repair found, of the sale as a whole; 0 in every other rebuild.
	Drift       int64 `json:"drift,omitempty"`
	StrayBuyers int64 `json:"stray_buyers,omitempty"`
	LostBuyers  int64 `json:"lost_buyers,omitempty"`
}
