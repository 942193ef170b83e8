package main

import (
	"cmp"
	"os"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/pipeline"
	"sluice/pipeline/installation"
	"sluice/pipeline/journal"
	"sluice/pipeline/resubmit"
)

type journalCmd struct {
	LS     journalLSCmd     `cmd:"" name:"ls" aliases:"list" help:"The accept journals on this machine."`
	Verify journalVerifyCmd `cmd:"" help:"Check the files of a journal; exit code 1 if one is torn or corrupt."`
	Replay journalReplayCmd `cmd:"" help:"Submit what the files of a journal hold to Redis again: for the disk of a machine that is gone. Running apis do it with their own."`
}

type journalLSCmd struct {
	Dir string `arg:"" optional:"" placeholder:"DIR" help:"Where the journals are; default: ACCEPT_JOURNAL, or its default."`
}

// Run lists the journals of a directory.
func (c *journalLSCmd) Run(a *app) error {
	dir := cmp.Or(c.Dir, os.Getenv("ACCEPT_JOURNAL"), config.DefaultAcceptJournal(os.Getenv))
	found, err := journal.List(dir)
	if err != nil {
		return err
	}
	t := table.New("JOURNAL", "INSTALLATION", "PROCESS", ">FILES", ">ACCEPTS", ">BYTES", ">CORRUPT", "DIRECTORY")
	views := make([]journalView, len(found))
	for i, f := range found {
		views[i] = journalView{f.ID, f.Installation, f.Dir, f.Live, f.Files, f.Accepts, f.Bytes, f.Corrupt}
		state := "ended"
		if f.Live {
			state = "runs"
		}
		t.Row(f.ID, f.Installation, state, len(f.Files), f.Accepts, f.Bytes, f.Corrupt, f.Dir)
	}
	return printList(a, views, t, "There is no accept journal in "+dir+".")
}

type journalView struct {
	ID           string   `json:"id"`
	Installation string   `json:"installation"`
	Dir          string   `json:"dir"`
	Live         bool     `json:"live"`
	Files        []string `json:"files"`
	Accepts      int      `json:"accepts"`
	Bytes        int64    `json:"bytes"`
	Corrupt      int64    `json:"corrupt_bytes"`
}

type journalVerifyCmd struct {
	Files []string `arg:"" placeholder:"FILE" help:"Files of a journal, NNN.journal."`
}

type journalFileView struct {
	File    string `json:"file"`
	Accepts int    `json:"accepts"`
	Bytes   int64  `json:"bytes"`
	Corrupt int64  `json:"corrupt_bytes"`
}

// Run reads files and counts what is whole in them.
func (c *journalVerifyCmd) Run(a *app) error {
	var views []journalFileView
	t := table.New("FILE", ">ACCEPTS", ">BYTES", ">CORRUPT")
	var corrupt int64
	for _, file := range c.Files {
		found, err := journal.ReadFile(file, func(pipeline.SalePartition, []pipeline.Accept) error { return nil })
		if err != nil {
			return err
		}
		views = append(views, journalFileView{file, found.Accepts, found.Bytes, found.Corrupt})
		t.Row(file, found.Accepts, found.Bytes, found.Corrupt)
		corrupt += found.Corrupt
	}
	if err := printList(a, views, t, ""); err != nil {
		return err
	}
	if corrupt > 0 {
		return errFound
	}
	return nil
}

type journalReplayCmd struct {
	Files []string `arg:"" placeholder:"FILE" help:"Files of a journal, NNN.journal."`
	Apply bool     `help:"Do it. Without this, only count the orders that Postgres does not have."`
}

type journalReplayView struct {
	Accepts int  `json:"accepts"`
	Applied bool `json:"applied"`
	Missing int  `json:"missing"` // not in Postgres when it was looked for
	// Where each stands after it was submitted.
	Standings map[resubmit.Standing]int `json:"standings,omitempty"`
}

// Run submits the accepts of files to Redis again, or counts what would be submitted.
func (c *journalReplayCmd) Run(a *app) error {
	return a.withStores(func(s *stores) error {
		parts := s.parts(process.NewLogger(a.err, s.cfg))
		r := journalReplay{
			app: a, stores: s, resubmitter: parts.Resubmitter(), fence: parts.Fence,
			view: journalReplayView{Applied: c.Apply, Standings: map[resubmit.Standing]int{}},
		}
		for _, file := range c.Files {
			if err := r.file(file); err != nil {
				return err
			}
		}
		v := &r.view
		if !c.Apply {
			return a.answer(v, "%d accepts, of which Postgres does not have %d; --apply submits them to Redis again. Nothing was "+
				"changed.", v.Accepts, v.Missing)
		}
		err := a.answer(v, "%d accepts, of which Postgres did not have %d: %d still had their slots in Redis, %d took their "+
			"units again, %d could not and are rejected, each with a dead letter, and of %d Redis does not have the sale.",
			v.Accepts, v.Missing, v.Standings[resubmit.Held], v.Standings[resubmit.Renewed], v.Standings[resubmit.Lost],
			v.Standings[resubmit.Unloaded])
		if err == nil && v.Standings[resubmit.Lost]+v.Standings[resubmit.Unloaded] > 0 {
			return errFound
		}
		return err
	})
}

// journalReplay submits files of journals.
type journalReplay struct {
	app         *app
	stores      *stores
	resubmitter *resubmit.Resubmitter
	fence       *installation.Fence
	view        journalReplayView
}

func (r *journalReplay) file(path string) error {
	return journal.InChunks(func(each func(pipeline.SalePartition, []pipeline.Accept) error) error {
		_, err := journal.ReadFile(path, each)
		return err
	}, r.submit)
}

func (r *journalReplay) submit(at pipeline.SalePartition, accepts []pipeline.Accept) error {
	orders := make([]pipeline.OrderKey, len(accepts))
	for i := range accepts {
		orders[i] = pipeline.OrderKey{SaleID: at.SaleID, OrderID: accepts[i].OrderID}
	}
	missing, err := r.stores.postgres.UnsettledOrders(r.app.ctx, orders)
	if err != nil {
		return err
	}
	r.view.Accepts += len(accepts)
	r.view.Missing += len(missing)
	if !r.view.Applied || len(missing) == 0 {
		return nil
	}
	if _, err := r.fence.Refresh(r.app.ctx); err != nil { // a Redis that was replaced must not take them
		return err
	}
	standings, err := r.resubmitter.Resubmit(r.app.ctx, at, accepts)
	for _, standing := range standings {
		r.view.Standings[standing]++
	}
	return err
}
