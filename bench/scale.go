package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/internal/loadgen"
	"sluice/internal/table"
	"sluice/lua"
	"sluice/pipeline"
)

// wantedScale is what must be left of the throughput with many sales, and with a long backlog.
const wantedScale = 0.9

// benchScale measures what more of something costs: many sales against one, a stream with a long backlog against an
// empty one, and several workers against one. All workers run in this process, beside the api.
func benchScale(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := s.openMoreSales(ctx); err != nil {
		return nil, err
	}
	err = s.withHandlers(ctx, func(full, _ servedHandler) error {
		b := scaleBench{workload: h, full: full, connections: slices.Max(s.opts.Connections)}
		for _, measure := range []func() comparison{b.sales, b.backlog, b.workersCompared} {
			c := measure()
			result, err := c.run(ctx, s)
			if err != nil {
				return err
			}
			if c.name != "scale-workers" {
				result.reach(c.pairs[0].says, result.Ratios[0].Median, wantedScale, true)
			}
			results = append(results, result)
			s.more = nil // to load them before each round of what follows would only take time
		}
		return nil
	})
	return results, err
}

type scaleBench struct {
	workload    *workload
	full        servedHandler
	connections int
}

// sales compares orders for one sale with orders that are spread over many. A sale is a gate of its own, so many sales
// mean many small batches.
func (b *scaleBench) sales() comparison {
	s := b.workload.testbed
	many := make([]string, len(s.more))
	for i, sale := range s.more {
		many[i] = sale.ID
	}
	says := fmt.Sprintf("%d sales / 1 sale", len(many))
	return comparison{
		name:  "scale-sales",
		title: fmt.Sprintf("Orders from POST to row, spread over sales, %d kept connections", b.connections),
		unit:  "orders",
		candidates: []candidate{
			b.stored("1 sale", 1, []string{saleID}),
			b.stored(fmt.Sprintf("%d sales", len(many)), 1, many),
		},
		pairs: []pair{{says, 1, 0}},
	}
}

// workersCompared compares one worker with several.
func (b *scaleBench) workersCompared() comparison {
	c := comparison{
		name:  "scale-workers",
		title: fmt.Sprintf("Orders from POST to row, workers in one process, %d kept connections", b.connections),
		unit:  "orders",
	}
	for i, n := range b.workload.testbed.opts.Workers {
		name := fmt.Sprintf("workers: %d", n)
		c.candidates = append(c.candidates, b.stored(name, n, []string{saleID}))
		if i > 0 {
			c.pairs = append(c.pairs, pair{fmt.Sprintf("%s / %s", name, c.candidates[0].name), i, 0})
		}
	}
	return c
}

// stored is a candidate whose orders end as rows.
func (b *scaleBench) stored(name string, workers int, sales []string) candidate {
	at := b.full
	at.name = name
	start := func(ctx context.Context) (func(), error) { return b.workload.startWorkers(ctx, workers) }
	return b.workload.endToEnd(at, loadgen.Config{Connections: b.connections, Sales: sales},
		storing{start, b.workload.testbed.waiting})
}

// startWorkers starts several workers, each as it is by default.
func (h *workload) startWorkers(ctx context.Context, n int) (stop func(), err error) {
	var stops []func()
	stop = func() {
		var ending sync.WaitGroup
		for _, one := range stops {
			ending.Go(one)
		}
		ending.Wait()
	}
	for range n {
		one, err := h.startWorker(ctx)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// backlog compares accepts into an empty stream with accepts behind orders that wait, with no worker to take them, so
// that there are as many all the time.
func (b *scaleBench) backlog() comparison {
	orders := b.workload.testbed.opts.Backlog
	wait := table.Number(int64(orders)) + " wait"
	return comparison{
		name:  "scale-backlog",
		title: fmt.Sprintf("Accepts behind orders that wait in the stream, %d kept connections", b.connections),
		unit:  "orders",
		candidates: []candidate{
			b.behind("nobody waits", 0), b.behind(wait, orders),
		},
		pairs: []pair{{wait + " / nobody waits", 1, 0}},
	}
}

func (b *scaleBench) behind(name string, backlog int) candidate {
	at := b.full
	at.name, at.backlog = name, backlog
	return at.candidate(loadgen.Config{Connections: b.connections})
}

// fillBacklog admits so many buyers, by the script itself, and forgets what that took.
func (s *testbed) fillBacklog(ctx context.Context, orders int) error {
	first := s.newBuyers()
	fill := gateBench{testbed: s, first: first}
	for done := 0; done < orders; {
		requests := make([]lua.AdmitRequest, min(lua.MaxAdmitBatch, orders-done))
		fill.fill(requests, int64(done))
		if err := admitAll(ctx, s, requests); err != nil {
			return err
		}
		done += len(requests)
	}
	return s.control.ConfigResetStat(ctx).Err()
}

// openMoreSales opens the sales that buyers are spread over.
func (s *testbed) openMoreSales(ctx context.Context) error {
	for i := range s.opts.Sales {
		sale := *s.sale
		sale.ID = fmt.Sprintf("%s-%03d", saleID, i)
		sale.Partitions = pipeline.PlaceSale(sale.ID, partitions)
		if err := s.store.CreateSale(ctx, &sale); err != nil {
			return err
		}
		s.more = append(s.more, &sale)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.sales.Load(ctx)
}
