package main

import (
	"context"
	"fmt"

	"sluice/internal/loadgen"
)

// earlierBuyers is how many buyers had an order before the sale was sold out.
const earlierBuyers = 20_000

// benchSoldOut measures what most buyers of a flash sale get: that nothing is left, against the accept of a handler
// that only parses and answers.
func benchSoldOut(ctx context.Context, s *testbed, _ *Report) ([]Result, error) {
	var results []Result
	err := s.withHandlers(ctx, func(full, quick servedHandler) (err error) {
		full.name, full.soldOut = "sold out", true
		results, err = s.overConnections(ctx, func(next loadgen.Config) comparison {
			return comparison{
				name:       fmt.Sprintf("sold-out-%d", next.Connections),
				title:      fmt.Sprintf("A sale that is sold out, %d kept connections", next.Connections),
				unit:       "answers",
				candidates: []candidate{full.candidate(next), quick.candidate(next)},
				pairs:      []pair{{"sold out / parse and answer", 0, 1}},
			}
		})
		return err
	})
	return results, err
}

// sellOut leaves no unit, and buyers who have an order.
func (s *testbed) sellOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	p := s.sale.Partitions[0]
	pipe := s.control.Pipeline()
	for n := range uint64(earlierBuyers) {
		id := loadgen.BuyerID(^s.opts.Seed, n)
		pipe.HSet(ctx, keys.Buyers(p, saleID), id, fmt.Sprintf("01936f2e-8a4b-7c3d-9e5f-%012x 1 %d 1760000000000 %d - -",
			n, n+1, n+1))
	}
	pipe.HSet(ctx, keys.Sale(p, saleID), "stock", 0, "accepted", earlierBuyers)
	_, err := pipe.Exec(ctx)
	return err
}
