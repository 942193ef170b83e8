package main

import (
	"strconv"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/recovery"
)

type ledgerCmd struct {
	Claims int64 `placeholder:"ID" help:"List the orders of this loss that the payment provider is to be asked about."`
}

// Run lists the times that Postgres had gone back, or the orders about which somebody knows what it has forgotten.
func (c *ledgerCmd) Run(a *app) error {
	if c.Claims > 0 {
		return c.claims(a)
	}
	return a.withPostgres(func(s *stores) error {
		losses, err := s.postgres.LedgerLosses(a.ctx)
		if err != nil {
			return err
		}
		views := view.NewLedgerLosses(losses)
		t := table.New("ID", "FOUND", "FINISHED", "SALE", "RESTORED", "ENDED", "REFUSED", "MISSING", "REDIS")
		for i, l := range losses {
			finished := "not yet"
			if !l.FinishedAt.IsZero() {
				finished = shortTime(l.FinishedAt)
			}
			for _, sale := range sumBySale(l.Sales) {
				t.Row(views[i].ID, shortTime(l.FoundAt), finished, sale.SaleID, table.Number(sale.Restored),
					table.Number(sale.Ended), table.Number(sale.Refused), table.Number(sale.Missing), sale.RedisBehind)
			}
			if len(l.Sales) == 0 {
				t.Row(views[i].ID, shortTime(l.FoundAt), finished, "", "", "", "", "", "")
			}
		}
		return printList(a, views, t, "Postgres was never found to have gone back.")
	})
}

// sumBySale adds up the partitions of each sale, in the order of the list.
func sumBySale(parts []recovery.SaleLoss) []recovery.SaleLoss {
	var sums []recovery.SaleLoss
	at := map[string]int{}
	for _, p := range parts {
		i, seen := at[p.SaleID]
		if !seen {
			i = len(sums)
			at[p.SaleID] = i
			sums = append(sums, recovery.SaleLoss{SaleID: p.SaleID})
		}
		sum := &sums[i]
		sum.Restored, sum.Ended = sum.Restored+p.Restored, sum.Ended+p.Ended
		sum.Refused, sum.Missing = sum.Refused+p.Refused, sum.Missing+p.Missing
		if p.RedisBehind != "" {
			sum.RedisBehind = p.RedisBehind
		}
	}
	return sums
}

// claims prints one order after the other, because there may be a million: as JSON, one object per line.
func (c *ledgerCmd) claims(a *app) error {
	return a.withPostgres(func(s *stores) error {
		n, sum := 0, recovery.NewClaimSum()
		err := s.postgres.EachClaim(a.ctx, c.Claims, func(claim *recovery.Claim) error {
			n++
			sum.Add(claim)
			if a.json {
				return a.printLine(view.NewClaim(claim))
			}
			sayf(a.out, "%s  order %s  number %s  buyer %s  %s  %s", claim.SaleID, claim.OrderID,
				strconv.FormatInt(claim.Number, 10), claim.UserID, claim.Status, claim.Why)
			return nil
		})
		if err != nil {
			return err
		}
		sayf(a.err, "%d orders; SHA-256 of the list: %s", n, sum)
		return nil
	})
}
