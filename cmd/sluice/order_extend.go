package main

import (
	"sluice/internal/process"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

type orderExtend struct {
	keyed
	Order  string `arg:"" help:"Id of the order (a UUID)."`
	Sale   string `required:"" placeholder:"ID" help:"Id of the sale."`
	Until  string `required:"" placeholder:"TIME" help:"+1h or RFC 3339; at most 24 hours from now. Repeating it changes nothing."`
	Reason string `required:"" placeholder:"TEXT" help:"Why, for the audit log; at most 1000 bytes."`
}

// Run extends the order's time to pay. One that does not await its payment stays as it is: exit code 1.
func (c *orderExtend) Run(a *app) error {
	id, err := parseOrderID(c.Order)
	if err != nil {
		return err
	}
	if err := c.fixed(c.Until); err != nil {
		return err
	}
	return a.extend(c.Sale, c.Until, func(x *lifecycle.Extender, sale *pipeline.Sale, e lifecycle.Extension) error {
		e.OrderID, e.Reason = id.String(), c.Reason
		order, err := x.Order(a.ctx, e)
		if err != nil {
			return a.lateFor(err)
		}
		return a.answer(view.NewOrder(sale, &order), "Order %s is to be paid by %s.", order.ID, shortTime(order.PayBy))
	})
}

type saleExtend struct {
	keyed
	Sale   string `arg:"" help:"Id of the sale."`
	Until  string `required:"" placeholder:"TIME" help:"+1h or RFC 3339; at most 24 hours from now. Repeating it changes nothing."`
	Reason string `required:"" placeholder:"TEXT" help:"Why, for the audit log; at most 1000 bytes."`
}

// Run extends the time to pay of all orders of the sale that await their payment.
func (c *saleExtend) Run(a *app) error {
	if err := c.fixed(c.Until); err != nil {
		return err
	}
	return a.extend(c.Sale, c.Until, func(x *lifecycle.Extender, sale *pipeline.Sale, e lifecycle.Extension) error {
		e.Reason = c.Reason
		extended, err := x.Sale(a.ctx, e)
		if err != nil {
			return err
		}
		return a.answer(struct {
			SaleID   string `json:"sale_id"`
			Until    string `json:"until"`
			Extended int    `json:"extended"`
		}{sale.ID, view.Time(e.Until), extended}, "%s of sale %s got more time to pay, until %s.",
			counted(int64(extended), "order"), sale.ID, shortTime(e.Until))
	})
}

// extend prepares an extension until a time, which may depend on the clock of Redis.
func (a *app) extend(
	saleID, until string, do func(*lifecycle.Extender, *pipeline.Sale, lifecycle.Extension) error,
) error {
	return a.withSale(saleID, func(s *stores, sale *pipeline.Sale) error {
		now, err := s.now(a.ctx)
		if err != nil {
			return err
		}
		at, err := when(until, now)
		if err != nil {
			return err
		}
		extender := s.parts(process.NewLogger(a.err, quietErrors(s.cfg))).Extender()
		return do(extender, sale, lifecycle.Extension{SaleID: sale.ID, Until: at, Actor: actor()})
	})
}
