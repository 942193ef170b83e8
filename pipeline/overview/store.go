package overview

import (
	"context"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/deadletter"
)

// Store is what an overview reads in Postgres.
type Store interface {
	audit.LedgerSource
	audit.BalanceSource
	// Duties counts what waits for an operator, and how long the latest orders took to be stored.
	Duties(ctx context.Context) (Duties, error)
	// UnitsByStatus adds up the units of a sale's orders. It reads all of them.
	UnitsByStatus(ctx context.Context, saleID string) (map[pipeline.OrderStatus]int64, error)
	// ReleasesOf lists what an order has given back, or is to give back.
	ReleasesOf(ctx context.Context, saleID, orderID string) ([]OrderRelease, error)
	// LettersOf returns the dead letters that name an order, the newest first, 100 at most, without payloads.
	LettersOf(ctx context.Context, orderID string) ([]deadletter.Letter, error)
	// CountOrders counts the orders of a sale that are stored. It reads them by their index.
	CountOrders(ctx context.Context, saleID string) (int64, error)
}

// Duties are what waits for an operator, and how fast orders are stored.
type Duties struct {
	Letters         int64 // dead letters that wait for an operator
	RefundsDue      int64 // payments to be paid back
	PaymentsWaiting int64 // payments that wait for their order to be stored
	Delay           Delay
}

// Delay is how long the latest orders took from their accept to their row. Both clocks are the stores' own.
type Delay struct {
	Orders      int // how many were looked at, SampledOrders at most
	Median, P99 time.Duration
	Latest      time.Time // when the latest was accepted
}

// SampledOrders is of how many of the latest orders a Delay is: some milliseconds of Postgres.
const SampledOrders = 500

// OrderRelease is what an order has given back, or is to give back.
type OrderRelease struct {
	Sequence  int64
	Reason    string
	Quantity  int
	CreatedAt time.Time
	AppliedAt time.Time // when Redis had it; zero: it is on its way
	Withdrawn bool      // only the slot goes back, the units do not go on sale again
}
