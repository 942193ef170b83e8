package main

import (
	"time"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/retention"
)

type retentionCmd struct {
	All    bool   `help:"Also sales of which nothing is left to drop."`
	DryRun bool   `name:"dry-run" help:"Look at each sale that is due, and say what holds it back. Nothing is dropped."`
	Orders string `placeholder:"TIME" help:"With --dry-run: as if ORDER_RETENTION were this, for instance 8760h."`
	After  string `placeholder:"ID" help:"Where the page before ended: the id of its last sale."`
	Limit  int    `default:"100" placeholder:"N" help:"Sales at most, 1 to 500; default 100."`
}

// Run says how long what is kept, and what became of the sales that have left Redis.
func (c *retentionCmd) Run(a *app) error {
	if c.Orders != "" && !c.DryRun {
		return usagef("--orders is for --dry-run: workers keep orders as long as their ORDER_RETENTION says")
	}
	if c.DryRun {
		return c.dryRun(a)
	}
	return a.withPostgres(func(s *stores) error {
		report, err := s.postgres.Retention(a.ctx, retention.Filter{After: c.After, Finished: c.All, Limit: c.Limit})
		if err != nil {
			return err
		}
		v := view.NewRetention(&report, c.Limit)
		if a.json {
			return a.printJSON(v)
		}
		sayPolicy(a, &report)
		t, last := table.New("SALE", "LEFT REDIS", "DUE", "DROPPED", "EXPORTED", "STATE"), ""
		for i := range report.Sales {
			sale := &report.Sales[i]
			last = sale.SaleID
			t.Row(sale.SaleID, shortTime(sale.RetiredAt), dueText(report.DueAt(sale)), table.Number(sale.Dropped),
				table.Number(sale.Exported), dropState(sale))
		}
		err = printList(a, v.Sales, t, "No sale that has left Redis has anything left to drop.")
		a.sayMore(len(v.Sales), c.Limit, last)
		return err
	})
}

func sayPolicy(a *app, r *retention.Report) {
	if r.SaidAt.IsZero() {
		sayf(a.out, "No worker has said yet how long what is kept.")
		return
	}
	export := "nothing is written before it is dropped"
	if r.Exported {
		export = "what is dropped is written into files before"
	}
	sayf(a.out, "Kept: sales in Redis %s after they are over, orders %s after that, the audit log %s, events %s; %s.",
		keptText(r.Policy.Sales), keptText(r.Policy.Orders), keptText(r.Policy.AuditLog), keptText(r.Policy.Events), export)
}

func keptText(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return d.String()
}

func dueText(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return shortTime(at)
}

func dropState(s *retention.SaleReport) string {
	switch {
	case !s.FinishedAt.IsZero():
		return "dropped " + shortTime(s.FinishedAt)
	case s.Held != "":
		return "held back: " + table.Clean(s.Held)
	case !s.BegunAt.IsZero():
		return "being dropped"
	}
	return "kept"
}

// dryRunLimit bounds the sales that a dry run audits.
const dryRunLimit = 100

type dryRunView struct {
	SaleID string  `json:"sale_id"`
	Orders int64   `json:"orders"` // that are there now
	Held   *string `json:"held"`   // why they would be kept; null: they would be dropped
}

// dryRun looks at the sales that are due, or would be, as a worker does.
func (c *retentionCmd) dryRun(a *app) error {
	return a.withStores(func(s *stores) error {
		after, err := c.orderRetention(a, s)
		if err != nil {
			return err
		}
		due, err := s.postgres.SalesToDrop(a.ctx, after, 0, dryRunLimit)
		if err != nil {
			return err
		}
		dropper := s.parts(process.NewLogger(a.err, s.cfg)).Dropper(retention.Policy{Orders: after}, nil)
		views := []dryRunView{}
		t := table.New("SALE", "ORDERS", "WOULD BE")
		for _, sale := range due {
			held, err := dropper.Holds(a.ctx, sale)
			if err != nil {
				return err
			}
			orders, err := s.postgres.Overview().CountOrders(a.ctx, sale.ID)
			if err != nil {
				return err
			}
			v, state := dryRunView{SaleID: sale.ID, Orders: orders}, "dropped"
			if held != "" {
				v.Held, state = &held, "kept: "+table.Clean(held)
			}
			views = append(views, v)
			t.Row(sale.ID, table.Number(orders), state)
		}
		return printList(a, views, t, "No sale is due.")
	})
}

// orderRetention is how long a dry run takes orders to be kept.
func (c *retentionCmd) orderRetention(a *app, s *stores) (time.Duration, error) {
	if c.Orders != "" {
		after, err := time.ParseDuration(c.Orders)
		if err != nil || after < retention.Least {
			return 0, usagef("--orders %s: use a time of at least %s, for instance 8760h", c.Orders, retention.Least)
		}
		return after, nil
	}
	report, err := s.postgres.Retention(a.ctx, retention.Filter{Limit: 1})
	if err == nil && report.Policy.Orders == 0 {
		err = pipeline.Errorf(pipeline.KindInvalid,
			"the workers keep orders for ever; --orders 8760h shows what they would drop otherwise")
	}
	return report.Policy.Orders, err
}
