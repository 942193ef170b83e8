package main

import (
	"context"

	"sluice/internal/table"
	"sluice/pipeline"
)

// saleCmd groups what can be done to sales.
type saleCmd struct {
	Create     saleCreate     `cmd:"" help:"Define a sale and load it into Redis."`
	Ls         saleList       `cmd:"" aliases:"list" help:"List all sales."`
	Show       saleShow       `cmd:"" help:"Show one sale, as Postgres defines it and as Redis has it."`
	Restock    saleRestock    `cmd:"" help:"Add units to a sale."`
	Reduce     saleReduce     `cmd:"" help:"Take units out of a sale that nobody has."`
	Edit       saleEdit       `cmd:"" help:"Change a sale's title, price, limit, waitlist, entry tickets, window or note."`
	Reschedule saleReschedule `cmd:"" help:"Change when a sale opens or closes."`
	Pause      salePause      `cmd:"" help:"Refuse orders until the sale is resumed."`
	Resume     saleResume     `cmd:"" help:"Take orders again in a paused sale."`
	Close      saleClose      `cmd:"" help:"End a sale for good."`
	Extend     saleExtend     `cmd:"" help:"Give all orders of a sale that await their payment more time for it."`
}

type saleShow struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// Run shows the sale.
func (c *saleShow) Run(a *app) error {
	return a.withSale(c.Sale, func(s *stores, sale *pipeline.Sale) error { return a.printSale(s, sale, "") })
}

type saleList struct{}

// Run lists the sales.
func (c *saleList) Run(a *app) error {
	return a.withStores(func(s *stores) error {
		now, err := s.now(a.ctx)
		if err != nil {
			return err
		}
		views := []saleView{}
		t := table.New("SALE", "PHASE", ">TOTAL", ">IN STOCK", ">SOLD", "OPENS", "CLOSES", "TITLE")
		err = s.eachSale(a.ctx, func(sale *pipeline.Sale) error {
			v := s.viewSale(a.ctx, sale, now)
			views = append(views, v)
			t.Row(v.ID, v.Phase, v.Total, orUnknown(v.Remaining), v.Sold, shortTime(v.opensAt), shortTime(v.closesAt), v.Title)
			return nil
		})
		if err != nil {
			return err
		}
		return printList(a, views, t, "No sales yet; sluice sale create makes one.")
	})
}

// eachSale goes through all sales, page by page, in the order of their ids.
func (s *stores) eachSale(ctx context.Context, do func(*pipeline.Sale) error) error {
	after := ""
	for {
		page, err := s.postgres.Sales(ctx, pipeline.SalesFilter{After: after})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, sale := range page {
			if err := do(sale); err != nil {
				return err
			}
		}
		after = page[len(page)-1].ID
	}
}
