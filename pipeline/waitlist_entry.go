package pipeline

import "time"

// WaitlistEntry is one wait of a buyer on the waitlist of a sale, as Postgres records it.
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
	LeftAt      time.Time // zero: the buyer did not leave
}
