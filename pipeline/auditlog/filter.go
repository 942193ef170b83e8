package auditlog

import (
	"strings"
	"time"

	"sluice/pipeline"
)

const (
	// MaxEntries is the most lines of one page: some 500 KB.
	MaxEntries = 500
	// maxActionBytes is far above any action's name.
	maxActionBytes = 64
)

// Filter chooses lines. A line must satisfy every field that is given; zero fields choose all.
type Filter struct {
	Actor    string
	Action   string
	SaleID   string
	OrderID  string // the order that it was done to
	Letter   int64  // the dead letter
	Payment  int64  // the payment, by its id in the list of payments
	Endpoint int64  // the endpoint of events
	Since    time.Time
	Until    time.Time // exclusive
	After    int64     // the id of the last line of the page before; 0: from the newest line on
	Limit    int       // 1..MaxEntries
}

// Validate returns a KindInvalid error that names the first field which can't choose anything.
func (f *Filter) Validate() error {
	switch {
	case f.Limit < 1 || f.Limit > MaxEntries:
		return pipeline.Errorf(pipeline.KindInvalid, "limit %d: use 1 to %d", f.Limit, MaxEntries)
	case f.After < 0:
		return pipeline.Errorf(pipeline.KindInvalid, "after %d: use the id of the last line of the page before", f.After)
	case f.Actor != "" && pipeline.ValidateActor(f.Actor) != nil:
		return pipeline.ValidateActor(f.Actor)
	case len(f.Action) > maxActionBytes || strings.ContainsFunc(f.Action, notOfAction):
		return pipeline.Errorf(pipeline.KindInvalid, "action: use the word of a line, such as restock or cancel")
	case f.SaleID != "" && !pipeline.ValidSaleID(f.SaleID):
		return pipeline.Errorf(pipeline.KindInvalid, "sale: it must be the id of a sale")
	case f.OrderID != "" && !pipeline.ValidUUID(f.OrderID):
		return pipeline.Errorf(pipeline.KindInvalid, "order: it must be the id of an order, a UUID")
	case f.Letter < 0 || f.Payment < 0 || f.Endpoint < 0:
		return pipeline.Errorf(pipeline.KindInvalid, "ids of dead letters, payments and endpoints are 1 or more")
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return pipeline.Errorf(pipeline.KindInvalid, "until: it must be after since")
	}
	return nil
}

func notOfAction(r rune) bool { return (r < 'a' || r > 'z') && r != '-' }

// Subject is what a line's detail must contain, as Postgres compares it; nil for any.
func (f *Filter) Subject() map[string]any {
	subject := map[string]any{}
	if f.OrderID != "" {
		subject["order_id"] = strings.ToLower(f.OrderID)
	}
	for name, id := range map[string]int64{"dead_letter": f.Letter, "payment": f.Payment, "endpoint": f.Endpoint} {
		if id != 0 {
			subject[name] = id
		}
	}
	if len(subject) == 0 {
		return nil
	}
	return subject
}
