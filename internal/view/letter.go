package view

import (
	"strconv"

	"sluice/pipeline/deadletter"
)

// Letter is a dead letter. In a list its payload is left out.
type Letter struct {
	ID            string         `json:"id"`
	CreatedAt     string         `json:"created_at"`
	Reason        string         `json:"reason"`
	Error         string         `json:"error"`
	SaleID        string         `json:"sale_id"`  // as far as the entry says
	OrderID       string         `json:"order_id"` // as far as the entry says
	Partition     string         `json:"partition"`
	EntryID       string         `json:"entry_id"`
	Deliveries    int64          `json:"deliveries"`
	ResolvedAt    *string        `json:"resolved_at"`
	Resolution    *string        `json:"resolution"` // replayed or discarded; null while it waits
	Note          string         `json:"note,omitempty"`
	ReplayOrderID *string        `json:"replay_order_id"` // the order that a replay made, or may have made
	Payload       map[string]any `json:"payload,omitempty"`
}

// NewLetter views a letter.
func NewLetter(l *deadletter.Letter) Letter {
	return Letter{
		ID: strconv.FormatInt(l.ID, 10), CreatedAt: Time(l.CreatedAt), Reason: l.Reason, Error: l.Error, SaleID: l.SaleID,
		OrderID: l.OrderID, Partition: l.Partition.String(), EntryID: l.EntryID, Deliveries: l.Deliveries,
		ResolvedAt: TimeOrNil(l.ResolvedAt), Resolution: textOrNil(string(l.Resolution)), Note: l.Note,
		ReplayOrderID: textOrNil(l.ReplayID), Payload: l.Payload,
	}
}

// NewLetters views a list.
func NewLetters(list []deadletter.Letter) []Letter { return views(list, NewLetter) }
