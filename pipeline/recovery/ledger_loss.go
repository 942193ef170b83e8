package recovery

import (
	"time"

	"sluice/pipeline"
)

// LedgerMark is what Postgres says of a sale on a partition, to be compared with the marks that Redis keeps.
type LedgerMark struct {
	pipeline.SalePartition
	Stored   int64 // rows ever stored, as far as workers counted them
	Released int64 // releases by which Redis is known to have given something back
	// ReleasesLost are those that Redis gave back and Postgres forgot for good.
	ReleasesLost int64
	// Spread says that the sale is on several partitions; Moves is the number of its latest move, and MovesDone one up to
	// which all have ended.
	Spread           bool
	Moves, MovesDone int64
}

// LedgerLoss is one time that Postgres was found to have forgotten what Redis knows: it was restored from a backup, or
// is a standby that lagged.
type LedgerLoss struct {
	ID         int64
	FoundAt    time.Time
	FinishedAt time.Time // zero while orders are being stored again
	Sales      []SaleLoss
}

// BegunLoss is a loss as it was found.
type BegunLoss struct {
	FoundAt time.Time  // by Postgres' clock
	Behind  []SaleLoss // the sales with rows that Postgres had forgotten, with Settled and Stored only
}

// HomeCount is what was done about orders of a sale on a partition since a loss was found, whichever process did it.
type HomeCount struct {
	Restored, Ended, Refused int64 // as in SaleLoss
}

// SaleLoss is what was found of a sale on a partition, and done.
type SaleLoss struct {
	SaleID    string             `json:"sale_id"`
	Partition pipeline.Partition `json:"partition"`
	Settled   int64              `json:"settled"`  // rows of which Redis knew that they were stored
	Stored    int64              `json:"stored"`   // rows that Postgres knew of
	Accepted  int64              `json:"accepted"` // Redis' accept counter; 0 where Redis has lost something as well
	Restored  int64              `json:"restored"` // orders stored again from their buyers' slots
	// Ended counts orders that Postgres had as live, and whose units Redis had given back: they are ended again.
	Ended   int64 `json:"ended"`
	Refused int64 `json:"refused"` // orders that can't stand, each with a dead letter
	// Missing counts accepts of which nothing is left but their number: their orders had ended, too.
	Missing int64 `json:"missing"`
	// ReleasesLost are the releases of these orders, at most.
	ReleasesLost int64 `json:"releases_lost"`
	Extended     int64 `json:"extended"` // orders that got more time to pay, because they may be paid
	// RedisBehind says what Redis had lost as well: what neither of the two stores knew is beyond repair.
	RedisBehind string `json:"redis_behind,omitempty"`
}
