package main

import (
	"sluice/internal/process"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

type orderReturn struct {
	keyed
	Order   string `arg:"" help:"Id of the order (a UUID)."`
	Sale    string `required:"" placeholder:"ID" help:"Id of the sale."`
	Restock bool   `help:"Put its units on sale again; otherwise they are withdrawn from the sale for good."`
	Reason  string `required:"" placeholder:"TEXT" help:"Why, for the audit log; at most 1000 bytes."`
}

// Run returns the order. One that is not paid stays as it is: exit code 1.
func (c *orderReturn) Run(a *app) error {
	id, err := parseOrderID(c.Order)
	if err != nil {
		return err
	}
	return a.withSale(c.Sale, func(s *stores, sale *pipeline.Sale) error {
		returner := s.parts(process.NewLogger(a.err, quietErrors(s.cfg))).Returner()
		order, err := returner.Return(a.ctx, lifecycle.Return{
			SaleID: sale.ID, OrderID: id.String(), Restock: c.Restock, Actor: actor(), Reason: c.Reason,
		})
		if err != nil {
			return a.lateFor(err)
		}
		return a.answer(view.NewOrder(sale, &order), "Order %s is %s. sluice payment ls --outcome refund_due --order %s "+
			"shows what is to be paid back.", order.ID, order.Status, order.ID)
	})
}

// lateFor reports a command that was right, but can't be carried out as the order stands: exit code 1.
func (a *app) lateFor(err error) error {
	if pipeline.KindOf(err) == pipeline.KindConflict {
		sayf(a.err, "sluice: %s; nothing was changed", sentence(err))
		return errFound
	}
	return advise(err, pipeline.KindNotFound, "sluice order show says whether it is still queued")
}
