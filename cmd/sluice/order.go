package main

import (
	"github.com/google/uuid"

	"sluice/pipeline"
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
	Sale  string `arg:"" help:"Id of the sale."`
	Order string `arg:"" help:"Id of the order (a UUID)."`
}

// Run shows the order.
func (c *orderShow) Run(a *app) error {
	id, err := parseOrderID(c.Order)
	if err != nil {
		return err
	}
	return a.withSale(c.Sale, func(s *stores, sale *pipeline.Sale) error {
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

func parseOrderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usagef("%q is not an order id: those are UUIDs", oneLine(text))
	}
	return id, nil
}
