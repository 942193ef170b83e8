package main

import (
	"time"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

// orderChoice are the flags that choose among stored orders.
type orderChoice struct {
	Sale      string `placeholder:"ID" help:"Only orders of this sale."`
	Order     string `placeholder:"ID" help:"Only the order with this id (a UUID)."`
	Number    int64  `placeholder:"N" help:"Only the order with this number."`
	Buyer     string `placeholder:"ID" help:"Only orders of this buyer."`
	Status    string `placeholder:"WORD,..." help:"Only orders with one of these statuses, for instance paid,refund_due."`
	Since     string `placeholder:"TIME" help:"Only orders accepted from then on: RFC 3339, or 2h for two hours ago."`
	Until     string `placeholder:"TIME" help:"Only orders accepted before then, in the same form."`
	PaymentID string `name:"payment-id" placeholder:"ID" help:"Only the order of this payment, by the provider's id."`
	Payment   string `placeholder:"WORD" help:"Only orders with a payment that is waiting, paid, refund_due or refunded."`
}

// filter reads the flags; what they can't choose is refused before any server is asked.
func (c *orderChoice) filter(limit int) (lifecycle.OrderFilter, error) {
	f := lifecycle.OrderFilter{
		SaleID: c.Sale, OrderID: c.Order, Number: c.Number, UserID: c.Buyer, Statuses: lifecycle.StatusesIn(c.Status),
		PaymentID: c.PaymentID, Payment: payments.Outcome(c.Payment), Limit: limit,
	}
	var err error
	now := time.Now()
	if f.Since, err = past("--since", c.Since, now); err != nil {
		return f, err
	}
	if f.Until, err = past("--until", c.Until, now); err != nil {
		return f, err
	}
	return f, f.Validate()
}

type orderList struct {
	orderChoice
	After string `placeholder:"CURSOR" help:"Where the page before ended, as it says."`
	Limit int    `default:"100" placeholder:"N" help:"Orders at most, 1 to 1000; default 100."`
}

// Run lists orders. In JSON it is the page as the admin API sends it.
func (c *orderList) Run(a *app) error {
	filter, err := c.filter(c.Limit)
	if err != nil {
		return err
	}
	if filter.After, err = lifecycle.OrderPositionOf(c.After); err != nil {
		return usagef("--after %s: use the cursor that the page before ends with", oneLine(c.After))
	}
	return a.withPostgres(func(s *stores) error {
		page, err := fullPage(a, s, filter)
		if err != nil {
			return err
		}
		v := view.NewOrderPage(&page)
		if a.json {
			return a.printJSON(v)
		}
		if err := printOrders(a, v.Orders, page.Orders); err != nil {
			return err
		}
		if v.NextAfter != nil {
			sayf(a.out, "There may be more; --after %s shows the next page.", *v.NextAfter)
		}
		return nil
	})
}

// fullPage goes on where the store has looked at many orders and found few: a person waits for the page, not for a
// part of it.
func fullPage(a *app, s *stores, filter lifecycle.OrderFilter) (lifecycle.OrderPage, error) {
	var page lifecycle.OrderPage
	for {
		part, err := s.postgres.Orders(a.ctx, filter)
		if err != nil {
			return page, err
		}
		page.Orders, page.Next = append(page.Orders, part.Orders...), part.Next
		filter.Limit -= len(part.Orders)
		if filter.After = part.Next; part.Next.IsZero() || filter.Limit == 0 {
			return page, nil
		}
	}
}

func printOrders(a *app, views []view.Order, orders []lifecycle.ListedOrder) error {
	t := table.New("ORDER", ">NUMBER", "ACCEPTED", "SALE", "BUYER", ">UNITS", ">AMOUNT", "STATUS")
	for i := range views {
		v, amount := &views[i], ""
		if v.Amount != nil {
			amount = payments.MoneyText(*v.Amount, orders[i].Currency)
		}
		t.Row(v.OrderID, v.OrderNumber, shortTime(orders[i].AcceptedAt), v.SaleID, v.UserID, v.Quantity, amount, v.Status)
	}
	return printList(a, views, t, "No such orders are stored. One that is still queued is found by sluice order show.")
}
