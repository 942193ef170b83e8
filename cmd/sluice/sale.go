package main

import (
	"context"
	"os/user"
	"strings"
	"time"

	"sluice/cmd/sluice/table"
	"sluice/internal/process"
	"sluice/pipeline"
)

// saleCmd groups what can be done to sales.
type saleCmd struct {
	Create     saleCreate     `cmd:"" help:"Define a sale and load it into Redis."`
	List       saleList       `cmd:"" help:"List all sales."`
	Show       saleShow       `cmd:"" help:"Show one sale, as Postgres defines it and as Redis has it."`
	Restock    saleRestock    `cmd:"" help:"Add units to a sale."`
	Reschedule saleReschedule `cmd:"" help:"Change when a sale opens or closes."`
	Pause      salePause      `cmd:"" help:"Refuse orders until the sale is resumed."`
	Resume     saleResume     `cmd:"" help:"Take orders again in a paused sale."`
	Close      saleClose      `cmd:"" help:"End a sale for good."`
}

type saleCreate struct {
	ID            string        `name:"id" required:"" placeholder:"ID" help:"1 to 64 characters of a-z, 0-9 and '-', not starting with '-'."`
	Title         string        `placeholder:"TEXT" help:"What is sold; default: the id."`
	Stock         int64         `required:"" placeholder:"UNITS" help:"Units for sale, 1 to 2147483648."`
	MaxQuantity   int           `default:"1" placeholder:"UNITS" help:"Most units in one order; default 1."`
	Opens         string        `default:"now" placeholder:"TIME" help:"now, +1h or RFC 3339; default now. Redis' clock decides."`
	Closes        string        `default:"+1h" placeholder:"TIME" help:"now, +1h or RFC 3339; default +1h."`
	PaymentWindow time.Duration `default:"15m" placeholder:"TIME" help:"How long a buyer has to pay; 0: no payment is asked for. Default 15m."`
}

// Run creates the sale.
func (c *saleCreate) Run(a *app) error {
	// First by our own clock: what can't be right needs no server to be refused.
	if _, err := c.sale(time.Now()); err != nil {
		return err
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	now, err := s.now(a.ctx)
	if err != nil {
		return err
	}
	sale, err := c.sale(now)
	if err != nil {
		return err
	}
	if err := s.fixPartitions(a.ctx); err != nil {
		return err
	}
	if err := a.publisher(s).Create(a.ctx, sale); err != nil {
		return advise(err, pipeline.KindConflict, "choose another --id")
	}
	return a.printSale(s, sale, "created")
}

func (c *saleCreate) sale(now time.Time) (*pipeline.Sale, error) {
	opens, err := when(c.Opens, now)
	if err != nil {
		return nil, err
	}
	closes, err := when(c.Closes, now)
	if err != nil {
		return nil, err
	}
	sale := &pipeline.Sale{
		ID: c.ID, Title: c.Title, Total: c.Stock, MaxQuantity: c.MaxQuantity,
		OpensAt: opens, ClosesAt: closes, PaymentWindow: c.PaymentWindow,
	}
	if sale.Title == "" {
		sale.Title = c.ID
	}
	return sale, sale.Validate()
}

type saleShow struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// Run shows the sale.
func (c *saleShow) Run(a *app) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	sale, err := s.postgres.Sale(a.ctx, c.Sale)
	if err != nil {
		return unknownSale(err)
	}
	return a.printSale(s, sale, "")
}

type saleList struct{}

// Run lists the sales.
func (c *saleList) Run(a *app) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	now, err := s.now(a.ctx)
	if err != nil {
		return err
	}
	views := []saleView{}
	err = s.eachSale(a.ctx, func(sale *pipeline.Sale) error {
		views = append(views, s.viewSale(a.ctx, sale, now))
		return nil
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(views)
	}
	if len(views) == 0 {
		say(a.out, "No sales yet; sluice sale create makes one.")
		return nil
	}
	t := table.New("SALE", "PHASE", ">TOTAL", ">IN STOCK", ">SOLD", "OPENS", "CLOSES", "TITLE")
	for _, v := range views {
		t.Row(v.ID, v.Phase, v.Total, orUnknown(v.Remaining), v.Sold, shortTime(v.opensAt), shortTime(v.closesAt), v.Title)
	}
	return t.Write(a.out, "")
}

type saleRestock struct {
	Sale string `arg:"" help:"Id of the sale."`
	Add  int64  `required:"" placeholder:"UNITS" help:"Units to add, 1 or more."`
}

// Run adds units.
func (c *saleRestock) Run(a *app) error {
	if c.Add < 1 || c.Add > pipeline.MaxStock {
		return usagef("--add %d: use 1 to %d units; units that buyers may hold can't be taken away", c.Add, int64(pipeline.MaxStock))
	}
	return a.change(c.Sale, "restocked", func(time.Time) (pipeline.SaleChange, error) {
		return pipeline.SaleChange{AddStock: c.Add}, nil
	})
}

type saleReschedule struct {
	Sale   string `arg:"" help:"Id of the sale."`
	Opens  string `placeholder:"TIME" help:"now, +1h or RFC 3339."`
	Closes string `placeholder:"TIME" help:"now, +1h or RFC 3339."`
}

// Run changes the window.
func (c *saleReschedule) Run(a *app) error {
	if c.Opens == "" && c.Closes == "" {
		return usagef("nothing to change: give --opens, --closes or both")
	}
	change := func(now time.Time) (change pipeline.SaleChange, err error) {
		if change.OpensAt, err = optionalWhen(c.Opens, now); err != nil {
			return change, err
		}
		change.ClosesAt, err = optionalWhen(c.Closes, now)
		return change, err
	}
	if _, err := change(time.Now()); err != nil {
		return err
	}
	return a.change(c.Sale, "rescheduled", change)
}

func optionalWhen(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time was given, and none is meant
	}
	at, err := when(text, now)
	return &at, err
}

type salePause struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// Run pauses the sale.
func (c *salePause) Run(a *app) error { return a.setState(c.Sale, "paused", pipeline.SalePaused) }

type saleResume struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// Run resumes the sale.
func (c *saleResume) Run(a *app) error { return a.setState(c.Sale, "resumed", pipeline.SaleActive) }

type saleClose struct {
	Sale string `arg:"" help:"Id of the sale."`
}

// Run closes the sale.
func (c *saleClose) Run(a *app) error { return a.setState(c.Sale, "closed", pipeline.SaleClosed) }

func (a *app) setState(id, done string, state pipeline.SaleState) error {
	return a.change(id, done, func(time.Time) (pipeline.SaleChange, error) {
		return pipeline.SaleChange{State: &state}, nil
	})
}

// change makes one change and shows the sale after it. What is changed may depend on Redis' clock.
func (a *app) change(id, done string, change func(now time.Time) (pipeline.SaleChange, error)) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	now, err := s.now(a.ctx)
	if err != nil {
		return err
	}
	what, err := change(now)
	if err != nil {
		return err
	}
	sale, err := a.publisher(s).Change(a.ctx, id, actor(), what)
	if err != nil {
		return unknownSale(err)
	}
	return a.printSale(s, sale, done)
}

func (a *app) publisher(s *stores) *pipeline.Publisher {
	return pipeline.NewPublisher(s.redis, s.keys, s.postgres, s.cfg.Partitions, process.NewLogger(a.err, s.cfg))
}

// maxActorBytes is what the audit log takes.
const maxActorBytes = 128

// actor is who the audit log says it was.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = strings.ToValidUTF8(u.Username, "?")
	}
	name = "cli:" + name
	return name[:min(len(name), maxActorBytes)]
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
