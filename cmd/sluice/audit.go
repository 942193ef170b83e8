package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/audit"
)

type auditCmd struct {
	explained
	Sale    saleID   `placeholder:"ID" help:"Audit this sale only; default: all of them."`
	Journal []string `placeholder:"FILE" sep:"none" help:"Also believe this file of an accept journal, of a machine that is gone. Running apis report what theirs hold."`
	Files   []string `arg:"" optional:"" placeholder:"FILE" help:"More files for --journal, so that --journal DIR/*.journal takes all of them."`
	Repair  bool     `help:"Show how what is wrong in Redis would be repaired."`
	Apply   bool     `help:"With --repair: do it. No buyer can order on a sale's partitions for some two seconds."`
}

// Run audits and ends with errFound when anything is wrong.
func (c *auditCmd) Run(a *app) error {
	if c.Apply && !c.Repair {
		return usagef("--apply is for --repair: an audit alone changes nothing")
	}
	if len(c.Files) > 0 && len(c.Journal) == 0 {
		return usagef("%s is neither a flag nor a file for --journal; to audit one sale, use --sale", c.Files[0])
	}
	if c.Repair && len(c.Journal) > 0 {
		return usagef("--journal is not for --repair: what only a journal has is submitted by sluice journal replay")
	}
	return a.withStores(func(s *stores) error {
		if c.Repair {
			return c.repair(a, s)
		}
		journals, err := s.readWitnesses(a, slices.Concat(c.Journal, c.Files))
		if err != nil {
			return err
		}
		views, err := s.audits(a.ctx, string(c.Sale), journals.witnesses)
		if err != nil {
			return err
		}
		reported, err := s.postgres.ReportsOfUnknownSales(a.ctx)
		if err != nil {
			return err
		}
		views = journals.complete(views, c.Sale == "", reported)
		if a.json {
			err = a.printJSON(views)
		} else {
			err = printAudits(a.out, views, "")
		}
		if err == nil && slices.ContainsFunc(views, func(v view.Audit) bool { return !v.Clean }) {
			return errFound
		}
		return err
	})
}

// audits audits one sale, or all, and believes some witnesses.
func (s *stores) audits(ctx context.Context, only string, believe []audit.Witness) ([]view.Audit, error) {
	auditor := audit.NewAuditor(s.redis, s.keys, s.postgres).With(believe...)
	views := []view.Audit{}
	err := s.oneOrEachSale(ctx, only, func(sale *pipeline.Sale) error {
		audited, err := auditOne(ctx, auditor, sale)
		views = append(views, audited)
		return err
	})
	return views, err
}

// oneOrEachSale does something with the sale of an id, or with all of them where it is empty.
func (s *stores) oneOrEachSale(ctx context.Context, only string, do func(*pipeline.Sale) error) error {
	if only == "" {
		return s.eachSale(ctx, do)
	}
	sale, err := s.postgres.Sale(ctx, only)
	if err != nil {
		return unknownSale(err)
	}
	return do(sale)
}

// auditOne turns a sale that is missing in Redis and is not over into a finding: its units are nowhere.
func auditOne(ctx context.Context, auditor *audit.Auditor, sale *pipeline.Sale) (view.Audit, error) {
	r, err := auditor.Audit(ctx, sale)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded {
		return view.LostSale(sale, sentence(err)), nil
	}
	if err != nil {
		return view.Audit{}, err
	}
	return view.NewAudit(r), nil
}

func printAudits(w io.Writer, views []view.Audit, indent string) error {
	if len(views) == 0 {
		sayf(w, indent+"No sales, nothing to audit.")
		return nil
	}
	t := table.New("SALE", ">TOTAL", ">STOCK", ">LIVE", ">IN FLIGHT", ">RELEASING", ">DRIFT", ">ORDERS", ">BUYERS",
		">STRAY", ">LOST", "RESULT")
	for _, v := range views {
		t.Row(v.SaleID, v.Total, v.Stock, v.Live, v.InFlight, v.Unapplied, v.Drift, v.Orders, v.Buyers, v.StrayBuyers,
			v.LostBuyers, auditResult(&v))
	}
	if err := t.Write(w, indent); err != nil {
		return err
	}
	for _, v := range views {
		if len(v.Findings) > 0 {
			sayf(w, indent+"%s: %s", v.SaleID, strings.Join(v.Findings, "; "))
		}
		if len(v.Notes) > 0 {
			sayf(w, indent+"%s, not wrong now: %s", v.SaleID, strings.Join(v.Notes, "; "))
		}
	}
	return nil
}

func auditResult(v *view.Audit) string {
	switch {
	case v.Clean && v.Exact && v.UncheckedReceipts == 0 && v.PostgresAlone:
		return "✓ (Postgres alone)"
	case v.Clean && v.Exact && v.UncheckedReceipts == 0:
		return "✓"
	case v.Clean:
		return "✓ (moving)"
	default:
		return "✗"
	}
}
