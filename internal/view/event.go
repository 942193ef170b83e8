package view

import (
	"encoding/json"
	"strconv"

	"sluice/webhook"
)

// Event is an event for other systems, as it was or will be sent.
type Event struct {
	ID        string          `json:"id"` // the webhook-id of each of its deliveries
	Position  string          `json:"position"`
	Type      string          `json:"type"`
	SaleID    string          `json:"sale_id"`
	OrderID   *string         `json:"order_id"` // null for an event of the sale itself
	CreatedAt string          `json:"created_at"`
	Data      json.RawMessage `json:"data"`
}

// NewEvent views an event.
func NewEvent(e *webhook.Event) Event {
	return Event{
		ID: e.ID, Position: strconv.FormatInt(e.Position, 10), Type: e.Type, SaleID: e.SaleID,
		OrderID: textOrNil(e.OrderID), CreatedAt: Time(e.CreatedAt), Data: e.Data,
	}
}

// NewEvents views a list.
func NewEvents(list []webhook.Event) []Event { return views(list, NewEvent) }

// Resent is what a request to send events once more chose.
type Resent struct {
	Events   int     `json:"events"`    // that are sent once more
	NextFrom *string `json:"next_from"` // where the rest of the range begins; null: this was all
	Endpoint string  `json:"endpoint"`  // its id
}

// NewResent views the answer to a request.
func NewResent(endpoint int64, r webhook.Resent) Resent {
	v := Resent{Events: r.Events, Endpoint: strconv.FormatInt(endpoint, 10)}
	if r.More {
		next := strconv.FormatInt(r.Last+1, 10)
		v.NextFrom = &next
	}
	return v
}
