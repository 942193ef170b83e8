package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"sluice/cmd/sluice/table"
	"sluice/pipeline"
)

// orderCmd groups what can be asked about orders.
type orderCmd struct {
	Show orderShow `cmd:"" help:"Show an order's slot, stream entry, lock, row and releases in one view."`
}

type orderShow struct {
	Sale  string `arg:"" help:"Id of the sale."`
	Order string `arg:"" help:"Id of the order (a UUID)."`
}

// orderView is everything that is known of one order. A part that does not exist is null: an order that is persisted and
// settled has no entry and no lock, one that is queued has no row.
type orderView struct {
	SaleID   string     `json:"sale_id"`
	OrderID  string     `json:"order_id"`
	UserID   string     `json:"user_id"`
	Status   string     `json:"status"`
	Slot     *slotView  `json:"slot"`
	Entry    *entryView `json:"entry"`
	Lock     *lockView  `json:"lock"`
	Row      *rowView   `json:"row"`
	Releases []release  `json:"releases"`
}

type rowView struct {
	OrderNumber string  `json:"order_number"`
	Quantity    int     `json:"quantity"`
	Status      string  `json:"status"`
	Reason      string  `json:"reason,omitempty"`
	Partition   string  `json:"partition"`
	Sequence    int64   `json:"sequence"`
	AcceptedAt  string  `json:"accepted_at"`
	PersistedAt string  `json:"persisted_at"`
	PayBy       *string `json:"pay_by"`
	PaidAt      *string `json:"paid_at"`
	ClosedAt    *string `json:"closed_at"`

	persistDelay time.Duration
}

// Run shows the order.
func (c *orderShow) Run(a *app) error {
	id, err := uuid.Parse(c.Order)
	if err != nil {
		return usagef("%q is not an order id: those are UUIDs", oneLine(c.Order))
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	sale, err := s.postgres.Sale(a.ctx, c.Sale)
	if err != nil {
		return unknownSale(err)
	}
	search := orderSearch{stores: s, sale: sale, id: id}
	view, err := search.view(a.ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(view)
	}
	return view.print(a)
}

func viewRow(o *pipeline.Order) *rowView {
	return &rowView{
		OrderNumber: strconv.FormatInt(o.Number, 10), Quantity: o.Quantity, Status: string(o.Status), Reason: o.Reason,
		Partition: o.Partition.String(), Sequence: o.Sequence, AcceptedAt: timestamp(o.AcceptedAt),
		PersistedAt: timestamp(o.PersistedAt), PayBy: timestampOrNil(o.PayBy), PaidAt: timestampOrNil(o.PaidAt),
		ClosedAt: timestampOrNil(o.ClosedAt), persistDelay: o.PersistedAt.Sub(o.AcceptedAt),
	}
}

func (v *orderView) print(a *app) error {
	say(a.out, "Order %s of buyer %s in sale %s: %s", v.OrderID, table.Clean(v.UserID), v.SaleID, v.Status)
	t := table.New("", "")
	t.Row("row", v.Row.text())
	t.Row("slot", v.Slot.text())
	t.Row("entry", v.Entry.text())
	t.Row("lock", v.Lock.text())
	for _, r := range v.Releases {
		t.Row("release", r.text())
	}
	if len(v.Releases) == 0 {
		t.Row("release", "none")
	}
	return t.Write(a.out, "  ")
}

func (r *rowView) text() string {
	if r == nil {
		return "not in Postgres yet"
	}
	text := fmt.Sprintf("%s, %d units, persisted %s after the accept", r.Status, r.Quantity, age(r.persistDelay))
	if r.PayBy != nil && r.Status == string(pipeline.StatusAwaitingPayment) {
		text += ", to be paid by " + *r.PayBy
	}
	if r.Reason != "" {
		text += ", because: " + r.Reason
	}
	return text
}

func (r *release) text() string {
	text := fmt.Sprintf("%d units, %s", r.Quantity, r.Reason)
	if r.AppliedAt == nil {
		return text + ", not given back yet"
	}
	return text + ", given back at " + timestamp(*r.AppliedAt)
}
