package main

import (
	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// orderCmd groups what can be asked about orders.
type orderCmd struct {
	Ls     orderList   `cmd:"" aliases:"list,search" help:"List stored orders, the newest first, or search for some."`
	Export orderExport `cmd:"" help:"Write all orders of a choice as CSV or as JSON lines."`
	Show   orderShow   `cmd:"" help:"Show an order's slot, stream entry, lock, row and releases in one view."`
	Pay    orderPay    `cmd:"" help:"Note that money came for an order, as the payment provider would."`
	Cancel orderCancel `cmd:"" help:"Cancel an order that is not paid, and give its units back."`
	Return orderReturn `cmd:"" help:"Take a paid order back: its payment is to be paid back."`
	Extend orderExtend `cmd:"" help:"Give an order more time to pay."`
}

type orderShow struct {
	Order string `arg:"" help:"Id of the order (a UUID)."`
	Old   string `arg:"" optional:"" hidden:""` // of the form that this had: SALE ORDER
	Sale  string `placeholder:"ID" help:"Id of the sale; default: that of the stored order."`
}

// Run shows the order.
func (c *orderShow) Run(a *app) error {
	orderID, saleID := c.Order, c.Sale
	if c.Old != "" {
		if c.Sale != "" {
			return usagef("%s: name one order, and its sale with --sale", oneLine(c.Old))
		}
		orderID, saleID = c.Old, c.Order
	}
	id, err := parseOrderID(orderID)
	if err != nil {
		return err
	}
	if saleID == "" {
		if saleID, err = a.saleOfOrder(id.String()); err != nil {
			return err
		}
	}
	return a.withSale(saleID, func(s *stores, sale *pipeline.Sale) error {
		search := orderSearch{stores: s, sale: sale, id: id}
		view, err := search.view(a.ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(view)
		}
		return view.print(a)
	})
}

// saleOfOrder finds the sale of an order that is stored.
func (a *app) saleOfOrder(id string) (saleID string, err error) {
	err = a.withPostgres(func(s *stores) error {
		page, err := s.postgres.Orders(a.ctx, lifecycle.OrderFilter{OrderID: id, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Orders) == 0 {
			return pipeline.Errorf(pipeline.KindNotFound,
				"no order %s is stored; if it is still queued, name its sale with --sale", id)
		}
		saleID = page.Orders[0].SaleID
		return nil
	})
	return saleID, err
}

func parseOrderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usagef("%q is not an order id: those are UUIDs", oneLine(text))
	}
	return id, nil
}
