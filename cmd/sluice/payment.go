package main

import (
	"slices"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/payments"
)

// paymentCmd groups what can be asked about payments.
type paymentCmd struct {
	Ls       paymentList     `cmd:"" aliases:"list" help:"List payments, the newest last."`
	Refunded paymentRefunded `cmd:"" help:"Note that a payment was paid back."`
}

type paymentList struct {
	Sale    string `placeholder:"ID" help:"Only payments for this sale."`
	Order   string `placeholder:"ID" help:"Only payments for this order."`
	Outcome string `placeholder:"WORD" help:"Only payments with this outcome: waiting, paid, refund_due, refunded, refused or repeated."`
	After   int64  `placeholder:"ID" help:"Only payments with a greater id: the last one of the page before."`
	Limit   int    `default:"100" placeholder:"N" help:"Payments at most, 1 to 500; default 100."`
}

// Run lists payments.
func (c *paymentList) Run(a *app) error {
	outcome := payments.Outcome(c.Outcome)
	switch {
	case c.Limit < 1 || c.Limit > payments.MaxPayments:
		return usagef("--limit %d: use 1 to %d", c.Limit, payments.MaxPayments)
	case c.Outcome != "" && !slices.Contains(payments.StoredOutcomes, outcome):
		return usagef("--outcome %s: use waiting, paid, refund_due, refunded, refused or repeated", oneLine(c.Outcome))
	}
	return a.withStores(func(s *stores) error {
		list, err := s.postgres.Payments(a.ctx, payments.Filter{
			After: c.After, SaleID: c.Sale, OrderID: c.Order, Outcome: outcome, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		views, last := view.NewPayments(list), ""
		t := table.New("ID", "SINCE", "OUTCOME", "REASON", ">AMOUNT", ">REFUNDED", "PAYMENT", "SALE", "ORDER", "REPORTED BY")
		for i, v := range views {
			p := &list[i]
			last = v.ID
			t.Row(v.ID, shortTime(p.ReceivedAt), v.Outcome, string(p.Reason), payments.MoneyText(p.Amount, p.Currency),
				refundedText(p), v.PaymentID, v.SaleID, v.OrderID, v.Actor)
		}
		err = printList(a, views, t, "No payments.")
		a.sayMore(len(views), c.Limit, last)
		return err
	})
}

// refundedText is what was paid back of a payment; empty where nothing was.
func refundedText(p *payments.Payment) string {
	if p.RefundedAmount == 0 {
		return ""
	}
	return payments.MoneyText(p.RefundedAmount, p.Currency)
}
