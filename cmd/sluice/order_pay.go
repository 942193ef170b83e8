package main

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

type orderPay struct {
	explained
	Order     string `arg:"" help:"Id of the order (a UUID)."`
	Sale      string `required:"" placeholder:"ID" help:"Id of the sale."`
	PaymentID string `name:"payment-id" placeholder:"ID" help:"The provider's id of the payment; default manual-ORDER. Repeating it changes nothing."`
	Amount    int64  `placeholder:"MINOR" help:"What was paid, in minor units (cents, for instance); default: it is not compared."`
	Currency  string `placeholder:"CODE" help:"ISO 4217, for instance EUR; goes with --amount."`
	Second    bool   `help:"The order has a payment, and this is other money that came for it as well: record it, to be paid back."`
}

// Run records the payment. Money that came too late for the order is recorded as well, and ends with exit code 1:
// it must be paid back. An order that has a payment stays as it is: with a payment id of its own, or once the order has
// ended, exit code 1 says so.
func (c *orderPay) Run(a *app) error {
	id, err := parseOrderID(c.Order)
	if err != nil {
		return err
	}
	if c.Second && c.PaymentID == "" {
		return usagef("--second: say which money it is with --payment-id")
	}
	payment := payments.Payment{
		PaymentID: cmp.Or(c.PaymentID, "manual-"+id.String()), SaleID: c.Sale, OrderID: id.String(), Amount: c.Amount,
		Currency: c.Currency, Actor: actor(), Second: c.Second,
	}
	if err := payment.Validate(); err != nil {
		return err
	}
	return a.withStores(func(s *stores) error {
		service := s.parts(process.NewLogger(a.err, quietErrors(s.cfg))).Payments()
		recorded, err := service.Pay(a.ctx, payment)
		switch {
		case err != nil:
			return err
		case recorded.Outcome == payments.Unneeded:
			return a.printUnneeded(&recorded, c.PaymentID != "")
		}
		return a.printPaid(&recorded)
	})
}

// printUnneeded says that nothing was recorded, because the order has a payment. That is what was wanted where the
// order is paid and no other money was named.
func (a *app) printUnneeded(p *payments.Payment, named bool) error {
	answer := struct {
		Outcome     string `json:"outcome"`
		Detail      string `json:"detail"`
		SaleID      string `json:"sale_id"`
		OrderID     string `json:"order_id"`
		OrderStatus string `json:"order_status"`
	}{string(p.Outcome), p.Detail, p.SaleID, p.OrderID, string(p.OrderStatus)}
	if p.OrderStatus == pipeline.StatusPaid && !named {
		return a.answer(answer, "Order %s: %s; nothing was changed.", p.OrderID, p.Detail)
	}
	err := a.answer(answer, "Order %s: %s; nothing was changed. If this is other money, which came as well, add --second "+
		"with its --payment-id: it is to be paid back then.", p.OrderID, p.Detail)
	return cmp.Or(err, errFound)
}

// printPaid prints the outcome of a payment.
func (a *app) printPaid(p *payments.Payment) error {
	if p.Outcome == payments.Refused {
		kind := pipeline.KindConflict
		unknown := []payments.Reason{payments.ReasonUnknownSale, payments.ReasonUnknownOrder, payments.ReasonOrderDropped}
		if slices.Contains(unknown, p.Reason) {
			kind = pipeline.KindNotFound
		}
		return pipeline.Errorf(kind, "%s; nothing was changed, and the payment is recorded as refused (%d)", p.Detail, p.ID)
	}
	err := a.answer(view.NewPayment(p), "Payment %s for order %s: %s.", table.Printable(p.PaymentID), p.OrderID,
		paidText(p))
	if err == nil && p.Outcome == payments.RefundDue {
		return errFound
	}
	return err
}

func paidText(p *payments.Payment) string {
	switch p.Outcome {
	case payments.Paid:
		return "the order is paid"
	case payments.Waiting:
		return "it waits; a worker decides it once the order is stored"
	case payments.Repeated:
		return fmt.Sprintf("it was reported before, and nothing was changed; the order was %s then "+
			"(sluice payment ls --order %s says what became of the money)", p.OrderStatus, p.OrderID)
	default:
		return p.Detail
	}
}
