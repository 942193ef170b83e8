package main

import (
	"cmp"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

type paymentRefunded struct {
	explained
	Payment  int64  `arg:"" help:"Id of the payment, as sluice payment ls shows it."`
	RefundID string `name:"refund-id" placeholder:"ID" help:"The provider's id of the refund; default manual-PAYMENT. Repeating it changes nothing."`
	Amount   int64  `placeholder:"MINOR" help:"What was paid back, in minor units (cents, for instance); default: all that is left."`
	Currency string `placeholder:"CODE" help:"ISO 4217, for instance EUR; goes with --amount."`
	Partial  bool   `help:"It is less than all that is left; the rest remains due."`
	Note     string `placeholder:"TEXT" help:"For the audit log; at most 1000 bytes."`
}

// Run records the refund. One that does not fit its payment is recorded as refused: exit code 1.
func (c *paymentRefunded) Run(a *app) error {
	if c.Payment < 1 {
		return usagef("%d is no id of a payment; sluice payment ls shows them", c.Payment)
	}
	refund := payments.Refund{
		RefundID: cmp.Or(c.RefundID, payments.ManualRefundID(c.Payment)), Payment: c.Payment, Amount: c.Amount,
		Currency: c.Currency, Partial: c.Partial, Note: c.Note, Actor: actor(),
	}
	if err := refund.ValidateByHand(); err != nil {
		return err
	}
	return a.withStores(func(s *stores) error {
		service := s.parts(process.NewLogger(a.err, quietErrors(s.cfg))).Payments()
		record, err := service.Refunded(a.ctx, refund)
		if err != nil {
			return err
		}
		return a.printRefunded(&record)
	})
}

func (a *app) printRefunded(record *payments.RefundRecord) error {
	r, p := &record.Refund, &record.Payment
	switch {
	case r.Outcome == payments.Refused && r.Reason == payments.ReasonUnknownPayment:
		return pipeline.Errorf(pipeline.KindNotFound, "no payment that counts has this id; sluice payment ls shows them")
	case r.Outcome == payments.Refused:
		sayf(a.err, "sluice: %s; nothing was changed, and the refund is recorded as refused (%d)", r.Detail, r.ID)
		return errFound
	}
	return a.answer(view.NewRefund(record), "Payment %s: %s.", table.Printable(p.PaymentID), refundText(r, p))
}

func refundText(r *payments.Refund, p *payments.Payment) string {
	left := payments.MoneyText(p.Amount-p.RefundedAmount, p.Currency)
	switch {
	case r.Outcome == payments.PartiallyRefunded:
		return payments.MoneyText(r.Amount, r.Currency) + " were paid back, " + left + " remain due"
	case r.Outcome == payments.Repeated && p.Outcome == payments.RefundDue:
		return "this refund was reported before, and nothing was changed; " + left + " remain due"
	case r.Outcome == payments.Repeated:
		return "this refund was reported before, and nothing was changed"
	case r.Amount == 0:
		return "it is refunded"
	}
	return "it is refunded, " + payments.MoneyText(p.RefundedAmount, cmp.Or(p.Currency, r.Currency)) + " in all"
}
