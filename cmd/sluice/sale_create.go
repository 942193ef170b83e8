package main

import (
	"cmp"
	"strconv"
	"time"

	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

type saleCreate struct {
	explained
	ID            string        `name:"id" required:"" placeholder:"ID" help:"1 to 64 characters of a-z, 0-9 and '-', not starting with '-'."`
	Title         string        `placeholder:"TEXT" help:"What is sold; default: the id."`
	Stock         int64         `required:"" placeholder:"UNITS" help:"Units for sale, 1 to 2147483648."`
	MaxQuantity   int           `default:"1" placeholder:"UNITS" help:"Most units in one order; default 1."`
	Opens         string        `default:"now" placeholder:"TIME" help:"now, +1h or RFC 3339; default now. Redis' clock decides."`
	Closes        string        `default:"+1h" placeholder:"TIME" help:"now, +1h or RFC 3339; default +1h."`
	Waitlist      int64         `default:"0" placeholder:"PEOPLE" help:"Most entries of its waitlist, once it is sold out; 0: no waitlist. Default 0."`
	PaymentWindow time.Duration `default:"15m" placeholder:"TIME" help:"How long a buyer has to pay; 0: no payment is asked for. Default 15m."`
	Price         int64         `placeholder:"MINOR" help:"What a unit costs, in minor units (cents, for instance); default: payments are recorded and not compared."`
	LimitGroup    string        `placeholder:"ID" help:"Sales that have a limit together; the others of the group must have the same --group-limit."`
	GroupLimit    int           `placeholder:"UNITS" help:"Most units of a buyer in all sales of the --limit-group."`
	Note          string        `placeholder:"TEXT" help:"For operators."`
	EntryTicket   bool          `help:"Orders need an entry ticket; the apis need ENTRY_TICKET_KEYS."`
	EntrySpread   time.Duration `default:"10s" placeholder:"TIME" help:"Over how long buyers with an entry ticket are let in after the opening, 0s to 10m; default 10s."`
	Spread        string        `default:"1" placeholder:"N|auto" help:"On how many partitions it lies, for an item that one Redis can't serve; auto: one on each Redis master. Not with --waitlist or --limit-group. Default 1."`
	Currency      string        `placeholder:"CODE" help:"ISO 4217, for instance EUR; goes with --price."`
}

// Run creates the sale.
func (c *saleCreate) Run(a *app) error {
	// First by our own clock: what can't be right needs no server to be refused.
	if _, err := c.sale(time.Now()); err != nil {
		return err
	}
	return a.withStores(func(s *stores) error {
		now, err := s.now(a.ctx)
		if err != nil {
			return err
		}
		sale, err := c.sale(now)
		if err != nil {
			return err
		}
		// What is put into Redis from now on is found by the number of partitions.
		if s.cfg.Partitions, err = s.postgres.EnsurePartitions(a.ctx, s.cfg.Partitions); err != nil {
			return err
		}
		if err := recovery.EnsureVerified(a.ctx, s.redis, s.keys, s.postgres, s.cfg.Partitions,
			process.NewLogger(a.err, s.cfg)); err != nil {
			return err
		}
		sale.CreatedBy = actor()
		if err := a.publisher(s).Create(a.ctx, sale); err != nil {
			return advise(err, pipeline.KindConflict, "choose another --id")
		}
		a.noteEntryKeys(s, sale)
		return a.printSale(s, sale, "created")
	})
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
		ID: c.ID, Title: cmp.Or(c.Title, c.ID), Total: c.Stock, MaxQuantity: c.MaxQuantity,
		OpensAt: opens, ClosesAt: closes, PaymentWindow: c.PaymentWindow, Waitlist: c.Waitlist,
		UnitPrice: c.Price, Currency: c.Currency, Note: c.Note, LimitGroup: c.LimitGroup, GroupLimit: c.GroupLimit,
		EntryTicket: c.EntryTicket, EntrySpread: c.EntrySpread,
	}
	if sale.Spread, err = spreadOf(c.Spread); err != nil {
		return nil, err
	}
	if err := sale.Validate(); err != nil {
		return nil, err
	}
	if !closes.After(now) {
		return nil, usagef("closes at %s, which is over: nobody could order; choose a later --closes",
			pipeline.FormatTime(closes))
	}
	return sale, nil
}

// spreadOf reads --spread, as pipeline.Sale has it.
func spreadOf(text string) (int, error) {
	if text == "auto" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > pipeline.MaxPartitions {
		return 0, usagef("--spread %q: use 1 to %d partitions, or auto", text, pipeline.MaxPartitions)
	}
	return n, nil
}

// noteEntryKeys reminds of the keys that orders of a sale need. They are settings of the apis, and need not be known
// here.
func (a *app) noteEntryKeys(s *stores, sale *pipeline.Sale) {
	if sale.EntryTicket && len(s.cfg.Entry.Keys) == 0 {
		sayf(a.err, "sluice: orders need an entry ticket: start every api with ENTRY_TICKET_KEYS, which is not set here")
	}
}
