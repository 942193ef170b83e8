package pipeline

import (
	"time"

	"github.com/google/uuid"
)

// OrderStatus is where an order stands.
type OrderStatus string

// The statuses. Queued is an order that is in the stream only: no row in Postgres ever has it.
const (
	StatusQueued          OrderStatus = "queued"
	StatusAwaitingPayment OrderStatus = "awaiting_payment"
	StatusConfirmed       OrderStatus = "confirmed"
	StatusPaid            OrderStatus = "paid"
	StatusCancelled       OrderStatus = "cancelled"
	StatusExpired         OrderStatus = "expired"
	StatusRejected        OrderStatus = "rejected"
	StatusRefundDue       OrderStatus = "refund_due" // it ended unpaid, and money came late
	StatusReturned        OrderStatus = "returned"   // it was paid; its money is to be paid back
	StatusRefunded        OrderStatus = "refunded"   // all the money that came for it was paid back
)

// Live reports whether an order with this status occupies stock and its buyer's slot.
func (s OrderStatus) Live() bool {
	switch s {
	case StatusQueued, StatusAwaitingPayment, StatusConfirmed, StatusPaid:
		return true
	default:
		return false
	}
}

// Order is one accepted order as it is in Postgres (or, while queued, in the buyer's slot in Redis).
type Order struct {
	SaleID      string
	ID          string // UUIDv7
	Number      int64  // the number that people read out
	UserID      string
	Quantity    int
	Status      OrderStatus
	Reason      string // why it was rejected; empty otherwise
	Partition   Partition
	Sequence    int64 // the sale's accept counter on that partition
	AcceptedAt  time.Time
	PersistedAt time.Time // zero while queued
	PayBy       time.Time // zero where no payment is due
	PaidAt      time.Time
	ClosedAt    time.Time
	Version     int // counts its statuses in Postgres from 1; 0 while queued
}

// OrderKey names an order.
type OrderKey struct {
	SaleID  string
	OrderID string // UUID in its canonical form
}

// ValidUUID reports whether an id is a UUID with its four hyphens, in upper or lower case: the only form in which ids
// of orders and events are given out. Postgres refuses some others that look like one, such as urn:uuid:….
func ValidUUID(id string) bool { return len(id) == 36 && uuid.Validate(id) == nil }
