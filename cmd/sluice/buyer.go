package main

import (
	"fmt"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/erasure"
	"sluice/pipeline/lifecycle"
)

type buyerCmd struct {
	Show     buyerShow     `cmd:"" help:"Show the orders that are stored of a buyer, in all sales."`
	Erase    buyerErase    `cmd:"" help:"Replace a buyer's id by a pseudonym wherever it is stored."`
	Erasures buyerErasures `cmd:"" help:"List the erasures, and what they wait for."`
}

type buyerShow struct {
	User  string `arg:"" help:"The buyer's id."`
	Limit int    `default:"500" placeholder:"N" help:"Orders at most, 1 to 500; default 500."`
}

// Run shows what Postgres has of a buyer.
func (c *buyerShow) Run(a *app) error {
	if err := pipeline.ValidateUserID(c.User); err != nil {
		return err
	}
	filter := lifecycle.OrderFilter{UserID: c.User, Limit: c.Limit}
	if err := filter.Validate(); err != nil {
		return err
	}
	return a.withPostgres(func(s *stores) error {
		page, err := s.postgres.Orders(a.ctx, filter)
		if err != nil {
			return err
		}
		v, t := view.NewOrderPage(&page), table.New("SALE", "ORDER", "STATUS", "QUANTITY", "ACCEPTED")
		for i := range page.Orders {
			o := &page.Orders[i]
			t.Row(o.SaleID, o.ID, o.Status, o.Quantity, shortTime(o.AcceptedAt))
		}
		return printList(a, v.Orders, t, "No order of this buyer is stored.")
	})
}

type buyerErase struct {
	explained
	User string `arg:"" help:"The buyer's id."`
}

// Run notes that a buyer is to be erased. A worker does it.
func (c *buyerErase) Run(a *app) error {
	return a.withPostgres(func(s *stores) error {
		e, err := s.postgres.RequestErasure(a.ctx, c.User, actor())
		if err != nil {
			return err
		}
		return a.answer(view.NewErasure(&e), "Erasure %d: the buyer becomes %s; %s.", e.ID, e.Pseudonym, erasureText(&e))
	})
}

func erasureText(e *erasure.Erasure) string {
	switch {
	case !e.FinishedAt.IsZero():
		return "done " + shortTime(e.FinishedAt)
	case e.WaitsFor > 0:
		return "it waits until " + counted(int64(e.WaitsFor), "sale") + " of the buyer left Redis"
	}
	return "a worker does it within a minute"
}

type buyerErasures struct {
	After int64 `placeholder:"ID" help:"Where the page before ended: the id of its last line."`
	Limit int   `default:"100" placeholder:"N" help:"Erasures at most, 1 to 500; default 100."`
}

// Run lists the erasures, the newest first. None names the buyer.
func (c *buyerErasures) Run(a *app) error {
	if c.Limit < 1 || c.Limit > erasure.MaxListed {
		return usagef("--limit %d: use 1 to %d", c.Limit, erasure.MaxListed)
	}
	return a.withPostgres(func(s *stores) error {
		list, err := s.postgres.Erasures(a.ctx, c.After, c.Limit)
		if err != nil {
			return err
		}
		t, last := table.New("ID", "REQUESTED", "ACTOR", "PSEUDONYM", "ROWS", "STATE"), ""
		for i := range list {
			e := &list[i]
			last = fmt.Sprint(e.ID)
			t.Row(e.ID, shortTime(e.RequestedAt), e.Actor, e.Pseudonym, table.Number(e.Rows), erasureText(e))
		}
		err = printList(a, view.NewErasures(list), t, "No buyer was erased.")
		a.sayMore(len(list), c.Limit, last)
		return err
	})
}
