package main

import (
	"cmp"
	"strings"

	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/deadletter"
)

// deadLetterCmd groups what can be done with dead letters.
type deadLetterCmd struct {
	Ls      letterList    `cmd:"" aliases:"list" help:"List dead letters, the newest last."`
	Show    letterShow    `cmd:"" help:"Show all of one dead letter."`
	Replay  letterReplay  `cmd:"" help:"Make an order of a dead letter."`
	Discard letterDiscard `cmd:"" help:"Close a dead letter without making an order of it."`
}

type letterList struct {
	Sale   saleID `placeholder:"ID" help:"Only letters of this sale."`
	Reason string `placeholder:"WORD" help:"Only letters for this reason, for instance undecodable or refused."`
	All    bool   `help:"Those that are replayed or discarded, too."`
	After  int64  `placeholder:"ID" help:"Only letters with a greater id: the last one of the page before."`
	Limit  int    `default:"100" placeholder:"N" help:"Letters at most, 1 to 500; default 100."`
}

// Run lists dead letters.
func (c *letterList) Run(a *app) error {
	if c.Limit < 1 || c.Limit > deadletter.MaxLetters {
		return usagef("--limit %d: use 1 to %d", c.Limit, deadletter.MaxLetters)
	}
	return a.withStores(func(s *stores) error {
		letters, err := s.postgres.Letters(a.ctx, deadletter.Filter{
			After: c.After, SaleID: string(c.Sale), Reason: c.Reason, All: c.All, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		views, last := view.NewLetters(letters), ""
		t := table.New("ID", "SINCE", "REASON", "SALE", "ORDER", "STATE", "ERROR")
		for i, v := range views {
			last = v.ID
			t.Row(v.ID, shortTime(letters[i].CreatedAt), v.Reason, v.SaleID, v.OrderID,
				cmp.Or(string(letters[i].Resolution), "waits"), v.Error)
		}
		err = printList(a, views, t, "No dead letters.")
		a.sayMore(len(views), c.Limit, last)
		return err
	})
}

type letterShow struct {
	ID int64 `arg:"" help:"Id of the dead letter."`
}

// Run shows the letter.
func (c *letterShow) Run(a *app) error {
	return a.withStores(func(s *stores) error {
		letter, err := s.postgres.Letter(a.ctx, c.ID)
		if err != nil {
			return unknownLetter(err)
		}
		return a.printLetter(&letter)
	})
}

type letterReplay struct {
	explained
	ID  int64    `arg:"" help:"Id of the dead letter."`
	Set []string `sep:"none" placeholder:"FIELD=VALUE" help:"Repair a field of the event: s (sale), u (buyer), q (units) or v (schema version). May be repeated."`
}

// Run replays the letter.
func (c *letterReplay) Run(a *app) error {
	repairs, err := parseRepairs(c.Set)
	if err != nil {
		return err
	}
	return a.withStores(func(s *stores) error {
		letter, err := a.replayer(s).Replay(a.ctx, c.ID, actor(), repairs)
		if err != nil {
			return unknownLetter(err)
		}
		return a.answer(view.NewLetter(&letter), "Dead letter %d is replayed as order %s.", letter.ID, letter.ReplayID)
	})
}

// parseRepairs reads field=value pairs. What a replay does not read can't be set.
func parseRepairs(set []string) (map[string]string, error) {
	repairs := make(map[string]string, len(set))
	for _, text := range set {
		name, value, found := strings.Cut(text, "=")
		_, twice := repairs[name]
		switch {
		case !found:
			return nil, usagef("--set %s: write it as field=value", table.Clean(text))
		case twice:
			return nil, usagef("--set %s is there twice", table.Clean(name))
		}
		repairs[name] = value
	}
	return repairs, deadletter.ValidateRepairs(repairs)
}

type letterDiscard struct {
	explained
	ID   int64  `arg:"" help:"Id of the dead letter."`
	Note string `placeholder:"TEXT" help:"Why; kept with the letter and in the audit log."`
}

// Run discards the letter.
func (c *letterDiscard) Run(a *app) error {
	return a.withStores(func(s *stores) error {
		letter, err := a.replayer(s).Discard(a.ctx, c.ID, actor(), c.Note)
		if err != nil {
			return unknownLetter(err)
		}
		return a.answer(view.NewLetter(&letter), "Dead letter %d is discarded.", letter.ID)
	})
}

func (a *app) replayer(s *stores) *deadletter.Replayer {
	return s.parts(process.NewLogger(a.err, s.cfg)).Replayer()
}

// unknownLetter is what to do about a letter that does not exist.
func unknownLetter(err error) error {
	return advise(err, pipeline.KindNotFound, "sluice dead-letter ls --all shows them")
}
