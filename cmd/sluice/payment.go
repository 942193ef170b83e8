package main

import (
	"slices"
	"strconv"
	"strings"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/payments"
)

// paymentCmd groups what can be asked about payments.
type paymentCmd struct {
	Ls paymentList `cmd:"" help:"List payments, the newest last."`
}

type paymentList struct {
	Sale    string `placeholder:"ID" help:"Only payments for this sale."`
	Order   string `placeholder:"ID" help:"Only payments for this order."`
	Outcome string `placeholder:"WORD" help:"Only payments with this outcome: waiting, paid, refund_due, refused or repeated."`
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
		return usagef("--outcome %s: use waiting, paid, refund_due, refused or repeated", oneLine(c.Outcome))
	}
	return a.withStores(func(s *stores) error {
		payments, err := s.postgres.Payments(a.ctx, payments.Filter{
			After: c.After, SaleID: c.Sale, OrderID: c.Order, Outcome: outcome, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		views, last := view.NewPayments(payments), ""
		t := table.New("ID", "SINCE", "OUTCOME", "REASON", ">AMOUNT", "PAYMENT", "SALE", "ORDER", "REPORTED BY")
		for i, v := range views {
			p := &payments[i]
			last = v.ID
			t.Row(v.ID, shortTime(p.ReceivedAt), v.Outcome, string(p.Reason), moneyText(p.Amount, p.Currency),
				v.PaymentID, v.SaleID, v.OrderID, v.Actor)
		}
		err = printList(a, views, t, "No payments.")
		a.sayMore(len(views), c.Limit, last)
		return err
	})
}

// moneyText is an amount in minor units: how many digits a currency has is not known here.
func moneyText(amount int64, currency string) string {
	if amount == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.FormatInt(amount, 10) + " " + currency)
}
