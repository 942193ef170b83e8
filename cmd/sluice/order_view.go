package main

import (
	"fmt"
	"strconv"
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// orderView is everything that is known of one order. A part that does not exist is null: an order that is persisted
// and settled has no entry and no lock, one that is queued has no row.
type orderView struct {
	SaleID   string     `json:"sale_id"`
	OrderID  string     `json:"order_id"`
	UserID   string     `json:"user_id"`
	Status   string     `json:"status"`
	Amount   *int64     `json:"amount"`   // what it costs, in minor units of currency; null where the sale has no price
	Currency *string    `json:"currency"` // ISO 4217
	Slot     *slotView  `json:"slot"`
	Entry    *entryView `json:"entry"`
	Lock     *lockView  `json:"lock"`
	Row      *rowView   `json:"row"`
	Releases []release  `json:"releases"`
	Waitlist *waitView  `json:"waitlist,omitempty"` // where the buyer waits for this order, or has left
}

// waitView is a buyer's entry in the waitlist.
type waitView struct {
	Quantity int     `json:"quantity"`
	JoinedAt string  `json:"joined_at"`
	LeftAt   *string `json:"left_at"`
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

// slotView is the buyer's slot in Redis.
type slotView struct {
	Partition  string `json:"partition"`
	Quantity   int    `json:"quantity"`
	Sequence   int64  `json:"sequence"`
	AcceptedAt string `json:"accepted_at"`
	HasKey     bool   `json:"idempotency_key"` // whether the buyer sent one
}

// entryView is the order's event in the stream.
type entryView struct {
	Partition  string  `json:"partition"`
	ID         string  `json:"id"`
	Consumer   *string `json:"consumer"` // null: not yet delivered to a worker
	Deliveries int64   `json:"deliveries"`
	IdleMS     int64   `json:"idle_ms"` // since the last delivery
}

// lockView is the lock that a worker holds while it persists the order.
type lockView struct {
	Token   string `json:"token"`
	LeaseMS int64  `json:"lease_ms"` // what is left of it
}

func viewRow(o *pipeline.Order) *rowView {
	return &rowView{
		OrderNumber: strconv.FormatInt(o.Number, 10), Quantity: o.Quantity, Status: string(o.Status), Reason: o.Reason,
		Partition: o.Partition.String(), Sequence: o.Sequence, AcceptedAt: view.Time(o.AcceptedAt),
		PersistedAt: view.Time(o.PersistedAt), PayBy: view.TimeOrNil(o.PayBy), PaidAt: view.TimeOrNil(o.PaidAt),
		ClosedAt: view.TimeOrNil(o.ClosedAt), persistDelay: o.PersistedAt.Sub(o.AcceptedAt),
	}
}

// price adds what the order costs, wherever it was found.
func (v *orderView) price(sale *pipeline.Sale) {
	switch {
	case v.Row != nil:
		v.Amount, v.Currency = view.AmountOf(sale, v.OrderID, v.Row.Quantity)
	case v.Slot != nil:
		v.Amount, v.Currency = view.AmountOf(sale, v.OrderID, v.Slot.Quantity)
	}
}

func (v *orderView) print(a *app) error {
	price := ""
	if v.Amount != nil {
		price = ", " + payments.MoneyText(*v.Amount, *v.Currency)
	}
	sayf(a.out, "Order %s of buyer %s in sale %s: %s%s", v.OrderID, table.Clean(v.UserID), v.SaleID, v.Status, price)
	t := table.New("", "")
	if v.Waitlist != nil {
		t.Row("waitlist", counted(int64(v.Waitlist.Quantity), "unit")+", since "+v.Waitlist.JoinedAt)
		return t.Write(a.out, "  ")
	}
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
	text := fmt.Sprintf("%s, %s, persisted %s after the accept", r.Status, counted(int64(r.Quantity), "unit"),
		age(r.persistDelay))
	if r.PayBy != nil && r.Status == string(pipeline.StatusAwaitingPayment) {
		text += ", to be paid by " + *r.PayBy
	}
	if r.Reason != "" {
		text += ", because: " + r.Reason
	}
	return text
}

func (r *release) text() string {
	text := counted(int64(r.Quantity), "unit") + ", " + r.Reason
	if r.Withdrawn {
		text += ", not put on sale again"
	}
	if r.AppliedAt == nil {
		return text + ", not given back yet"
	}
	return text + ", given back at " + view.Time(*r.AppliedAt)
}

func (v *slotView) text() string {
	if v == nil {
		return "none: the buyer's slot is free, or another order's"
	}
	return fmt.Sprintf("%s: %s, accept number %s of the sale, at %s", v.Partition, counted(int64(v.Quantity), "unit"),
		table.Number(v.Sequence), v.AcceptedAt)
}

func (v *entryView) text() string {
	switch {
	case v == nil:
		return "none: settled"
	case v.Consumer == nil:
		return fmt.Sprintf("%s %s: waits for a worker", v.Partition, v.ID)
	}
	return fmt.Sprintf("%s %s: pending with %s since %s, delivery %d", v.Partition, v.ID, table.Clean(*v.Consumer),
		age(time.Duration(v.IdleMS)*time.Millisecond), v.Deliveries)
}

func (v *lockView) text() string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("held as %s for another %s", table.Clean(v.Token), age(time.Duration(v.LeaseMS)*time.Millisecond))
}
