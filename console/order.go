package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/overview"
	"sluice/pipeline/payments"
	"sluice/webhook"
)

// orderFacts are what all places know of one order. What is in none of them is nil or empty.
type orderFacts struct {
	Sale     *pipeline.Sale
	ID       uuid.UUID
	Now      time.Time
	Row      *pipeline.Order
	Slot     *overview.Slot
	Event    *pipeline.Event
	Delivery overview.Delivery
	Lock     *overview.Lock
	Wait     *pipeline.WaitlistEntry
	Payments []payments.Payment
	Releases []overview.OrderRelease
	Letters  []deadletter.Letter
	Log      []auditlog.Entry
	Events   []webhook.Event
	Missing  []string // what could not be read: the timeline may lack something
}

// orderView is one order.
type orderView struct {
	*orderFacts
	UserID   string
	Number   int64
	Quantity int
	Status   string
	Price    string
	Why      string // why it has this status, and what comes next
	Steps    []step
}

// showOrder shows one order's whole life, from wherever something is known of it.
func (c *console) showOrder(q *request) error {
	sale, err := c.sale(q)
	if err != nil {
		return err
	}
	id, err := uuid.Parse(q.PathValue("order"))
	if err != nil || !pipeline.ValidUUID(q.PathValue("order")) {
		return pipeline.Errorf(pipeline.KindNotFound, "there is no such order: their ids are UUIDs")
	}
	facts, err := c.factsOf(q.Context(), sale, id)
	if err != nil {
		return err
	}
	v, found := facts.view()
	if !found {
		return pipeline.Errorf(pipeline.KindNotFound, "sale %s has no order %s", sale.ID, id)
	}
	return q.render(http.StatusOK, "order", page{Title: "Order " + number(v.Number), Section: "Orders", Body: v})
}

// factsOf asks Redis before Postgres: an order that is stored in between is then seen in both, never in none.
func (c *console) factsOf(ctx context.Context, sale *pipeline.Sale, id uuid.UUID) (*orderFacts, error) {
	f := &orderFacts{Sale: sale, ID: id, Now: c.Now().UTC()}
	if err := c.factsOfRedis(ctx, f); err != nil {
		f.Missing = append(f.Missing, "Redis: "+messageOf(err))
	}
	if err := c.factsOfPostgres(ctx, f); err != nil {
		return nil, err
	}
	userID := ""
	if f.Row != nil {
		userID = f.Row.UserID
	} else if f.Event != nil {
		userID = f.Event.UserID
	}
	if f.Row == nil || f.Row.Status.Live() { // an order that ended has no slot, and looking through all takes long
		var err error
		parts := c.Overview.Parts()
		if f.Slot, err = parts.Slot(ctx, sale, id, userID); err != nil {
			f.Missing = append(f.Missing, "Redis: "+messageOf(err))
		}
	}
	return f, nil
}

func (c *console) factsOfRedis(ctx context.Context, f *orderFacts) (err error) {
	parts := c.Overview.Parts()
	for _, p := range f.Sale.Partitions {
		event, err := parts.Event(ctx, p, f.ID)
		if err != nil {
			return err
		}
		if event != nil {
			f.Event = event
			if f.Delivery, err = parts.Delivery(ctx, event); err != nil {
				return err
			}
		}
		lock, err := parts.Lock(ctx, p, f.ID)
		if err != nil {
			return err
		}
		if lock != nil {
			f.Lock = lock
		}
	}
	return nil
}

func (c *console) factsOfPostgres(ctx context.Context, f *orderFacts) (err error) {
	id := f.ID.String()
	row, err := c.Store.Order(ctx, f.Sale.ID, id)
	switch {
	case err == nil:
		f.Row = &row
	case pipeline.KindOf(err) != pipeline.KindNotFound:
		return err
	}
	wait, err := c.Store.WaitlistEntry(ctx, f.Sale.ID, id)
	switch {
	case err == nil:
		f.Wait = &wait
	case pipeline.KindOf(err) != pipeline.KindNotFound:
		return err
	}
	if f.Payments, err = c.Store.Payments(ctx, payments.Filter{SaleID: f.Sale.ID, OrderID: id}); err != nil {
		return err
	}
	if f.Releases, err = c.Overview.Store.ReleasesOf(ctx, f.Sale.ID, id); err != nil {
		return err
	}
	if f.Letters, err = c.Overview.Store.LettersOf(ctx, id); err != nil {
		return err
	}
	if f.Events, err = c.Store.Events(ctx, webhook.EventFilter{
		SaleID: f.Sale.ID, OrderID: id, Limit: listed,
	}); err != nil {
		return err
	}
	f.Log, err = c.Store.AuditLog(ctx, auditlog.Filter{SaleID: f.Sale.ID, OrderID: id, Limit: listed})
	return err
}

// saleOfQueued finds the sale of an order that is not stored yet, or that somebody waits for, among those that are on.
func (c *console) saleOfQueued(ctx context.Context, text string) string {
	id, err := uuid.Parse(strings.ToLower(text))
	if err != nil {
		return ""
	}
	parts := c.Overview.Parts()
	for p := range pipeline.Partition(c.Overview.Partitions) {
		if event, err := parts.Event(ctx, p, id); err == nil && event != nil {
			return event.SaleID
		}
	}
	for _, sale := range c.Overview.Sales.List(c.Now(), overview.MaxGlanced) {
		if sale.Waitlist == 0 {
			continue
		}
		if _, err := c.Store.WaitlistEntry(ctx, sale.ID, id.String()); err == nil {
			return sale.ID
		}
	}
	return ""
}
