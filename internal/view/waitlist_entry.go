package view

import (
	"strconv"

	"sluice/pipeline"
)

// WaitlistEntry is one wait of a buyer on a waitlist.
type WaitlistEntry struct {
	SaleID      string  `json:"sale_id"`
	OrderID     string  `json:"order_id"` // of the order that is made when the buyer's turn comes
	OrderNumber string  `json:"order_number"`
	UserID      string  `json:"user_id"`
	Quantity    int     `json:"quantity"`
	Ticket      int64   `json:"ticket"` // the lower one is served first
	JoinedAt    string  `json:"joined_at"`
	LeftAt      *string `json:"left_at"` // null: the buyer did not leave
}

// NewWaitlistEntry views an entry.
func NewWaitlistEntry(e *pipeline.WaitlistEntry) WaitlistEntry {
	return WaitlistEntry{
		SaleID: e.SaleID, OrderID: e.OrderID, OrderNumber: strconv.FormatInt(e.Number, 10), UserID: e.UserID,
		Quantity: e.Quantity, Ticket: e.Ticket, JoinedAt: Time(e.JoinedAt), LeftAt: TimeOrNil(e.LeftAt),
	}
}
