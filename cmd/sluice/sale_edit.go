package main

import (
	"time"

	"sluice/pipeline"
)

type saleEdit struct {
	explained
	Sale        string         `arg:"" help:"Id of the sale."`
	Title       *string        `placeholder:"TEXT" help:"What is sold."`
	Price       *int64         `placeholder:"MINOR" help:"What a unit costs in orders from five seconds later on, in minor units (cents, for instance). Orders that were asked for before keep their price."`
	Currency    *string        `placeholder:"CODE" help:"ISO 4217, for instance EUR; default: as it is."`
	MaxQuantity *int           `placeholder:"UNITS" help:"Units per order, of orders from now on."`
	Waitlist    *int64         `placeholder:"ENTRIES" help:"The most entries of the waitlist; those that are beyond keep their places."`
	Opens       string         `placeholder:"TIME" help:"now, +1h or RFC 3339."`
	Closes      string         `placeholder:"TIME" help:"now, +1h or RFC 3339."`
	Note        *string        `placeholder:"TEXT" help:"For operators; '' takes it away. The one thing that can be changed of a closed sale."`
	EntryTicket *bool          `negatable:"" help:"Whether orders from now on need an entry ticket; the apis need ENTRY_TICKET_KEYS."`
	EntrySpread *time.Duration `placeholder:"TIME" help:"Over how long buyers with an entry ticket are let in after the opening, 0s to 10m."`
	IfVersion   int64          `placeholder:"N" help:"Only if the sale is at this version."`
}

// Run edits the sale: all that is given at once.
func (c *saleEdit) Run(a *app) error {
	if c.Title == nil && c.Price == nil && c.Currency == nil && c.MaxQuantity == nil && c.Waitlist == nil &&
		c.Opens == "" && c.Closes == "" && c.Note == nil && c.EntryTicket == nil && c.EntrySpread == nil {
		return usagef("nothing to change: give what is to change, for instance --title or --price")
	}
	if c.IfVersion < 0 {
		return usagef("--if-version %d: versions begin at 1", c.IfVersion)
	}
	if _, err := c.change(time.Now()); err != nil {
		return err
	}
	return a.change(c.Sale, "edited", c.change)
}

func (c *saleEdit) change(now time.Time) (change pipeline.SaleChange, err error) {
	change = pipeline.SaleChange{
		Title: c.Title, UnitPrice: c.Price, Currency: c.Currency, MaxQuantity: c.MaxQuantity, Waitlist: c.Waitlist,
		Note: c.Note, IfVersion: c.IfVersion, EntryTicket: c.EntryTicket, EntrySpread: c.EntrySpread,
	}
	if change.OpensAt, err = optionalWhen(c.Opens, now); err != nil {
		return change, err
	}
	change.ClosesAt, err = optionalWhen(c.Closes, now)
	return change, err
}

type saleReduce struct {
	explained
	Sale string `arg:"" help:"Id of the sale."`
	To   int64  `required:"" placeholder:"UNITS" help:"Units that the sale has in all then, sold ones included."`
}

// Run takes units out. Repeating it changes nothing.
func (c *saleReduce) Run(a *app) error {
	if c.To < 1 || c.To > pipeline.MaxStock {
		return usagef("--to %d: use 1 to %d units", c.To, int64(pipeline.MaxStock))
	}
	return a.withStores(func(s *stores) error {
		sale, err := a.publisher(s).Reduce(a.ctx, c.Sale, actor(), c.To)
		if err != nil {
			return unknownSale(err)
		}
		return a.printSale(s, sale, "reduced")
	})
}
