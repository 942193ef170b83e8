package pipeline

import (
	"time"
)

// Stay is one stay of a buyer in the waitlist of a sale, as Postgres notes it.
type WaitlistEntry struct {
	SaleID      string
	OrderID     string // of the order that is made when the buyer's turn comes
	UserID      string
	Number      int64 // its order number
	Quantity    int   // units
	Partition   Partition
	Ticket      int64 // the lower one is served first
	KeyHash     string
	PayloadHash string
	JoinedAt    time.Time // by Redis' clock
	LeftAt      time.Time // zero: did not leave
}
