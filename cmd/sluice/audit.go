package main

import (
	"context"
	"io"
	"strings"

	"sluice/cmd/sluice/table"
	"sluice/pipeline"
)

type auditCmd struct {
	Sale string `placeholder:"ID" help:"Audit this sale only; default: all of them."`
}

// auditView is one sale's audit in JSON. Units, unless they say otherwise.
type auditView struct {
	SaleID      string   `json:"sale_id"`
	Clean       bool     `json:"clean"`
	Exact       bool     `json:"exact"` // false: the sale was moving all the time
	Total       int64    `json:"total"`
	Stock       int64    `json:"stock"`
	Live        int64    `json:"live"`
	InFlight    int64    `json:"in_flight"`
	Unapplied   int64    `json:"unapplied"`
	Drift       int64    `json:"drift"`
	Orders      int64    `json:"orders"`   // rows
	Accepted    int64    `json:"accepted"` // accepts
	Buyers      int64    `json:"buyers"`   // slots
	StrayBuyers int64    `json:"stray_buyers"`
	LostBuyers  int64    `json:"lost_buyers"`
	Findings    []string `json:"findings"`
}

// Run audits and ends with errFound when anything is wrong.
func (c *auditCmd) Run(a *app) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	views, err := s.audits(a.ctx, c.Sale)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(views)
	} else {
		err = printAudits(a.out, views, "")
	}
	if err != nil {
		return err
	}
	for _, v := range views {
		if !v.Clean {
			return errFound
		}
	}
	return nil
}

// audits looks at one sale, or at all.
func (s *stores) audits(ctx context.Context, only string) ([]auditView, error) {
	auditor := pipeline.NewAuditor(s.redis, s.keys, s.postgres)
	views := []auditView{}
	look := func(sale *pipeline.Sale) error {
		view, err := auditOne(ctx, auditor, sale)
		views = append(views, view)
		return err
	}
	if only == "" {
		err := s.eachSale(ctx, look)
		return views, err
	}
	sale, err := s.postgres.Sale(ctx, only)
	if err != nil {
		return nil, unknownSale(err)
	}
	err = look(sale)
	return views, err
}

// auditOne turns a sale that Redis does not hold into a finding: its units are nowhere.
func auditOne(ctx context.Context, auditor *pipeline.Auditor, sale *pipeline.Sale) (auditView, error) {
	r, err := auditor.Audit(ctx, sale)
	if pipeline.KindOf(err) == pipeline.KindNotLoaded {
		return auditView{SaleID: sale.ID, Total: sale.Total, Findings: []string{sentence(err)}}, nil
	}
	if err != nil {
		return auditView{}, err
	}
	return viewAudit(r), nil
}

func viewAudit(r *pipeline.AuditReport) auditView {
	v := auditView{
		SaleID: r.SaleID, Clean: r.Clean(), Exact: r.Exact, Total: r.Total, Stock: r.Stock, Live: r.Live,
		InFlight: r.InFlight, Unapplied: r.Unapplied, Drift: r.Drift, Orders: r.Orders, Accepted: r.Accepted,
		Buyers: r.Buyers, StrayBuyers: r.StrayBuyers, LostBuyers: r.LostBuyers, Findings: []string{},
	}
	v.Findings = append(v.Findings, r.Findings...)
	return v
}

func printAudits(w io.Writer, views []auditView, indent string) error {
	if len(views) == 0 {
		sayf(w, indent+"No sales, nothing to audit.")
		return nil
	}
	t := table.New("SALE", ">TOTAL", ">STOCK", ">LIVE", ">IN FLIGHT", ">RELEASING", ">DRIFT", ">ORDERS", ">BUYERS", ">STRAY", ">LOST", "RESULT")
	for _, v := range views {
		t.Row(v.SaleID, v.Total, v.Stock, v.Live, v.InFlight, v.Unapplied, v.Drift, v.Orders, v.Buyers, v.StrayBuyers, v.LostBuyers, v.result())
	}
	if err := t.Write(w, indent); err != nil {
		return err
	}
	for _, v := range views {
		if len(v.Findings) > 0 {
			sayf(w, indent+"%s: %s", v.SaleID, strings.Join(v.Findings, "; "))
		}
	}
	return nil
}

func (v *auditView) result() string {
	switch {
	case v.Clean && v.Exact:
		return "✓"
	case v.Clean:
		return "✓ (moving)"
	default:
		return "✗"
	}
}
