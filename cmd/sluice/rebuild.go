package main

import (
	"sluice/internal/process"
	"sluice/internal/table"
	"sluice/pipeline"
	"sluice/pipeline/recovery"
)

type rebuildCmd struct {
	Sale  saleID `placeholder:"ID" help:"Rebuild this sale only; default: every sale that Redis must hold."`
	Apply bool   `help:"Do it. Without this, only show what would be. Nobody can order on the sales' partitions meanwhile."`
}

// Run shows what a rebuild of sales from Postgres and the stream would make of them in Redis, or does it.
func (c *rebuildCmd) Run(a *app) error {
	return a.withStores(func(s *stores) (err error) {
		var reports []pipeline.RebuildReport
		if c.Sale == "" {
			reports, err = a.verifier(s).RebuildAll(a.ctx, actor(), c.Apply)
		} else {
			reports, err = a.verifier(s).Rebuild(a.ctx, string(c.Sale), actor(), c.Apply)
		}
		if err != nil {
			return unknownSale(err)
		}
		err = printList(a, reports, rebuildTable(reports), "Redis must hold no sale; there is nothing to rebuild.")
		if !c.Apply && !a.json && len(reports) > 0 {
			sayf(a.out,
				"Nothing was changed. --apply does it; running apis and workers do it by themselves when Redis is behind.")
		}
		return err
	})
}

func (a *app) verifier(s *stores) *recovery.Verifier {
	return recovery.NewVerifier(s.parts(process.NewLogger(a.err, s.cfg)).VerifierConfig())
}

func rebuildTable(reports []pipeline.RebuildReport) *table.Table {
	t := table.New("SALE", "PARTITION", "LOST", ">STOCK NOW", ">STOCK THEN", ">ACCEPTED NOW", ">ACCEPTED THEN", ">LIVE",
		">IN FLIGHT", ">MISSING")
	for _, r := range reports {
		t.Row(r.SaleID, r.Partition, r.Reason, r.StockBefore, r.StockAfter, r.AcceptedBefore, r.AcceptedAfter, r.Live,
			r.InFlight, r.Missing)
	}
	return t
}
