package webhook

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Event is a row of the outbox.
type Event struct {
	Position  int64 // the order of delivery
	ID        string
	Type      string
	SaleID    string
	OrderID   string // empty for an event of the sale itself
	CreatedAt time.Time
	Data      json.RawMessage // nil where the endpoint does not want the event
}

// envelope is an event in the structured mode of CloudEvents 1.0 (JSON format, sections 2 and 3).
type envelope struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject"`
	Time        string          `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Position    string          `json:"position,omitempty"` // an extension: where a replay can begin
	Data        json.RawMessage `json:"data"`
}

// body returns what is sent: the same bytes at every attempt.
func (e *Event) body() ([]byte, error) {
	v := envelope{
		SpecVersion: "1.0", ID: e.ID, Source: "/v1/sales/" + e.SaleID, Type: e.Type, Subject: e.OrderID,
		Time: e.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z07:00"), ContentType: "application/json", Data: e.Data,
	}
	if e.Position > 0 {
		v.Position = strconv.FormatInt(e.Position, 10)
	}
	if v.Subject == "" {
		v.Subject = e.SaleID
	}
	if e.SaleID == "" {
		v.Source, v.Subject = "/", "test"
	}
	return json.Marshal(v)
}

// testEvent returns an event that belongs to no sale.
func testEvent(now time.Time) Event {
	return Event{
		ID: uuid.NewString(), Type: TypeTest, CreatedAt: now,
		Data: json.RawMessage(`{"message":"This endpoint is registered. Events look like this one."}`),
	}
}
