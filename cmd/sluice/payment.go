package main

import (
	"slices"
	"strconv"
	"strings"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
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
	outcome := pipeline.PaymentOutcome(c.Outcome)
	switch {
	case c.Limit < 1 || c.Limit > pipeline.MaxPayments:
		return usagef("--limit %d: use 1 to %d", c.Limit, pipeline.MaxPayments)
	case c.Outcome != "" && !slices.Contains(pipeline.StoredOutcomes, outcome):
		return usagef("--outcome %s: use waiting, paid, refund_due, refused or repeated", oneLine(c.Outcome))
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	payments, err := s.postgres.Payments(a.ctx, pipeline.PaymentsFilter{
		After: c.After, SaleID: c.Sale, OrderID: c.Order, Outcome: outcome, Limit: c.Limit,
	})
	if err != nil {
		return err
	}
	views := view.NewPayments(payments)
	if a.json {
		return a.printJSON(views)
	}
	if len(views) == 0 {
		sayf(a.out, "No payments.")
		return nil
	}
	t := table.New("ID", "SINCE", "OUTCOME", "REASON", ">AMOUNT", "PAYMENT", "SALE", "ORDER", "TOLD BY")
	for i, v := range views {
		t.Row(v.ID, shortTime(payments[i].ReceivedAt), v.Outcome, string(payments[i].Reason), moneyText(payments[i].Amount, payments[i].Currency),
			v.PaymentID, v.SaleID, v.OrderID, v.Actor)
	}
	if err := t.Write(a.out, ""); err != nil {
		return err
	}
	if len(views) == c.Limit {
		sayf(a.out, "There may be more; --after %s shows the next page.", views[len(views)-1].ID)
	}
	return nil
}

// moneyText is an amount as it is told: in minor units, because how many digits a currency has is not ours to know.
func moneyText(amount int64, currency string) string {
	if amount == 0 {
		return ""
	}
	return strings.TrimSpace(strconv.FormatInt(amount, 10) + " " + currency)
}
