package view

import (
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/recovery"
)

// Audit is one sale's audit. Units, unless they say otherwise.
type Audit struct {
	SaleID string `json:"sale_id"`
	Clean  bool   `json:"clean"`
	Exact  bool   `json:"exact"` // false: the sale was moving all the time
	// The sale is over and not in Redis any more; stock is what was never sold.
	PostgresAlone bool  `json:"postgres_alone"`
	Total         int64 `json:"total"`
	Stock         int64 `json:"stock"`
	Live          int64 `json:"live"`
	InFlight      int64 `json:"in_flight"`
	Unapplied     int64 `json:"unapplied"`
	Withdrawn     int64 `json:"withdrawn"` // of returned orders, and not put on sale again
	Moving        int64 `json:"moving"`    // between two partitions of the sale
	Drift         int64 `json:"drift"`
	Orders        int64 `json:"orders"`   // rows
	Accepted      int64 `json:"accepted"` // accepts
	Buyers        int64 `json:"buyers"`   // slots
	StrayBuyers   int64 `json:"stray_buyers"`
	LostBuyers    int64 `json:"lost_buyers"`
	// Receipts that buyers hold.
	LostReceipts      int64    `json:"lost_receipts"`      // that neither store has
	UncheckedReceipts int64    `json:"unchecked_receipts"` // of any sale, too many to be looked up
	Waiting           int64    `json:"waiting"`            // entries of the waitlist
	Rejected          int64    `json:"rejected"`           // orders rejected after their accept
	DeadLetters       int64    `json:"dead_letters"`       // that wait for an operator
	AcceptsLost       int64    `json:"accepts_lost"`       // that no rebuild found
	Rebuilds          int64    `json:"rebuilds"`           // of the sale in Redis, repairs included
	Findings          []string `json:"findings"`           // what is wrong
	Notes             []string `json:"notes"`              // what was repaired or refused, and is not wrong now
}

// NewAudit views a report.
func NewAudit(r *audit.Report) Audit {
	v := Audit{
		SaleID: r.SaleID, Clean: r.Clean(), Exact: r.Exact,
		PostgresAlone: r.PostgresAlone, Total: r.Total, Stock: r.Stock, Live: r.Live,
		InFlight: r.InFlight, Unapplied: r.Unapplied, Withdrawn: r.Withdrawn, Moving: r.Moving, Drift: r.Drift,
		Orders: r.Orders, Accepted: r.Accepted,
		Buyers: r.Buyers, StrayBuyers: r.StrayBuyers, LostBuyers: r.LostBuyers, Waiting: r.Waiting,
		LostReceipts: r.LostReceipts, UncheckedReceipts: r.UncheckedReceipts,
		Rejected: r.Rejected, DeadLetters: r.Letters, AcceptsLost: r.AcceptsLost, Rebuilds: r.Rebuilds,
		Findings: []string{}, Notes: []string{},
	}
	v.Findings = append(v.Findings, r.Findings...)
	v.Notes = append(v.Notes, r.Notes()...)
	return v
}

// LostSale is the audit of a sale that is missing in Redis: its units are nowhere, which is a finding.
func LostSale(sale *pipeline.Sale, finding string) Audit {
	return Audit{SaleID: sale.ID, Total: sale.Total, Findings: []string{finding}, Notes: []string{}}
}

// Repair is the result of the repair of one sale.
type Repair struct {
	Applied bool                     `json:"applied"` // false: nothing was changed, and rebuilt says what would be
	Found   Audit                    `json:"found"`
	Kept    int64                    `json:"kept"` // accepts that only their buyers' slots knew of
	Rebuilt []pipeline.RebuildReport `json:"rebuilt"`
	Left    *Audit                   `json:"left"` // null where nothing was applied
}

// NewRepair views a report.
func NewRepair(r *recovery.RepairReport) Repair {
	v := Repair{Applied: r.Applied, Found: NewAudit(r.Found), Kept: r.Kept, Rebuilt: []pipeline.RebuildReport{}}
	v.Rebuilt = append(v.Rebuilt, r.Rebuilt...)
	if r.Left != nil {
		left := NewAudit(r.Left)
		v.Left = &left
	}
	return v
}
