package webhook

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/pipeline"
)

const (
	// MaxEvents is the most events that one call lists: some 500 KB.
	MaxEvents = 500
	// MaxResent is the most events that one call has resent: what one transaction writes without keeping others waiting.
	MaxResent = 1000
)

// EventFilter chooses events. Zero fields choose all.
type EventFilter struct {
	SaleID  string
	OrderID string
	Type    string
	EventID string
	Since   time.Time
	Until   time.Time // exclusive
	After   int64     // only greater positions: the last one of the page before
	Limit   int       // 1..MaxEvents
}

// Validate returns a KindInvalid error that names the first field which can't choose anything.
func (f *EventFilter) Validate() error {
	switch {
	case f.Limit < 1 || f.Limit > MaxEvents:
		return pipeline.Errorf(pipeline.KindInvalid, "limit %d: use 1 to %d", f.Limit, MaxEvents)
	case f.After < 0:
		return pipeline.Errorf(pipeline.KindInvalid, "after %d: use a position, from 0", f.After)
	}
	return validateChoice(f.SaleID, f.OrderID, f.Type, f.EventID)
}

func validateChoice(saleID, orderID, eventType, eventID string) error {
	switch {
	case saleID != "" && !pipeline.ValidSaleID(saleID):
		return pipeline.Errorf(pipeline.KindInvalid, "sale: it must be the id of a sale")
	case orderID != "" && !pipeline.ValidUUID(orderID):
		return pipeline.Errorf(pipeline.KindInvalid, "order: it must be the id of an order, a UUID")
	case eventID != "" && !pipeline.ValidUUID(eventID):
		return pipeline.Errorf(pipeline.KindInvalid, "event: it must be the id of an event, a UUID")
	case eventType != "" && !slices.Contains(Types, eventType):
		return pipeline.Errorf(pipeline.KindInvalid, "event type %q: use one of %s",
			pipeline.Clip(eventType), strings.Join(Types, ", "))
	}
	return nil
}

// ResendRequest says which events an endpoint is to get once more: one, or those of a range of positions that the other
// fields choose.
type ResendRequest struct {
	EventID string
	From    int64 // position, inclusive
	To      int64 // position, inclusive; 0: the last one that the endpoint has passed
	SaleID  string
	OrderID string
	Type    string
}

// Resend is an event that an endpoint is to get once more.
type Resend struct {
	Event
	Requests int // how often it was asked for when this was read
	Attempts int // failures since
}

// Resent is what a request to resend chose.
type Resent struct {
	Events int
	Last   int64 // position of the last one
	More   bool  // there may be more after it
}

// HistoryStore finds events, and lets endpoints get them once more.
type HistoryStore interface {
	Events(ctx context.Context, filter EventFilter) ([]Event, error)
	ResendEvents(ctx context.Context, actor string, id int64, r ResendRequest) (Resent, error)
	ReplayEvents(ctx context.Context, actor string, id, from int64) (Endpoint, error)
}

// Resend has an endpoint get events once more, under the ids that they had: a receiver that drops repeated ids, as it
// should, takes those that it has for what they are. They come besides what is new, in no order with it. Errors:
// KindInvalid; KindNotFound; KindConflict, where the one event that is asked for is not kept, not wanted or not passed
// yet; KindUnavailable.
func (d *EndpointService) Resend(ctx context.Context, actor string, id int64, r ResendRequest) (Resent, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Resent{}, err
	}
	if r.EventID == "" && r.From < 1 {
		return Resent{}, pipeline.Errorf(pipeline.KindInvalid,
			"from: name an event, or the position of the first one, from 1")
	}
	if r.To == 0 {
		r.To = math.MaxInt64
	}
	if r.To < r.From {
		return Resent{}, pipeline.Errorf(pipeline.KindInvalid, "to: position %d is before position %d", r.To, r.From)
	}
	if err := validateChoice(r.SaleID, r.OrderID, r.Type, r.EventID); err != nil {
		return Resent{}, err
	}
	resent, err := d.ResendEvents(ctx, actor, id, r)
	if err == nil && resent.Events == 0 && r.EventID != "" {
		err = pipeline.Errorf(pipeline.KindConflict, "event %s can't be resent to endpoint %d: it is not kept any more, "+
			"the endpoint does not want its type, or the endpoint has not got that far and will get it by itself", r.EventID, id)
	}
	return resent, err
}

// Replay has an endpoint get everything from a position on once more, in the order in which it came. It is for a
// receiver that lost its data. Errors: KindInvalid, KindNotFound, KindConflict, KindUnavailable.
func (d *EndpointService) Replay(ctx context.Context, actor string, id, from int64) (Endpoint, error) {
	if err := pipeline.ValidateActor(actor); err != nil {
		return Endpoint{}, err
	}
	if from < 1 {
		return Endpoint{}, pipeline.Errorf(pipeline.KindInvalid, "from: use the position of an event, from 1")
	}
	return d.ReplayEvents(ctx, actor, id, from)
}
