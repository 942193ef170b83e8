package main

import (
	"time"

	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/sales"
)

type saleRestock struct {
	explained
	Sale string `arg:"" help:"Id of the sale."`
	Add  int64  `required:"" placeholder:"UNITS" help:"Units to add, 1 or more."`
}

// Run adds units.
func (c *saleRestock) Run(a *app) error {
	if c.Add < 1 || c.Add > pipeline.MaxStock {
		return usagef("--add %d: use 1 to %d units; sluice sale reduce takes units away that nobody has", c.Add,
			int64(pipeline.MaxStock))
	}
	return a.change(c.Sale, "restocked", as(pipeline.SaleChange{AddStock: c.Add}))
}

type saleReschedule struct {
	explained
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
	explained
	Sale string `arg:"" help:"Id of the sale."`
}

// Run pauses the sale.
func (c *salePause) Run(a *app) error { return a.setState(c.Sale, "paused", pipeline.SalePaused) }

type saleResume struct {
	explained
	Sale string `arg:"" help:"Id of the sale."`
}

// Run resumes the sale.
func (c *saleResume) Run(a *app) error { return a.setState(c.Sale, "resumed", pipeline.SaleActive) }

type saleClose struct {
	explained
	Sale string `arg:"" help:"Id of the sale."`
}

// Run closes the sale.
func (c *saleClose) Run(a *app) error { return a.setState(c.Sale, "closed", pipeline.SaleClosed) }

func (a *app) setState(id, done string, state pipeline.SaleState) error {
	return a.change(id, done, as(pipeline.SaleChange{State: &state}))
}

// as is a change that does not depend on the time.
func as(change pipeline.SaleChange) func(time.Time) (pipeline.SaleChange, error) {
	return func(time.Time) (pipeline.SaleChange, error) { return change, nil }
}

// change makes one change and shows the sale after it. What is changed may depend on Redis' clock.
func (a *app) change(id, done string, change func(now time.Time) (pipeline.SaleChange, error)) error {
	return a.withStores(func(s *stores) error {
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
		if what.EntryTicket != nil {
			a.noteEntryKeys(s, sale)
		}
		return a.printSale(s, sale, done)
	})
}

func (a *app) publisher(s *stores) *sales.Publisher {
	return s.parts(process.NewLogger(a.err, s.cfg)).Publisher()
}
