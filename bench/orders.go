package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"sluice/internal/loadgen"
)

// benchOrders measures accepted orders over HTTP against a handler that only parses and answers.
func benchOrders(ctx context.Context, s *testbed, _ *Report) ([]Result, error) {
	var results []Result
	err := s.withHandlers(ctx, func(full, quick servedHandler) (err error) {
		results, err = s.overConnections(ctx, func(next loadgen.Config) comparison {
			return comparison{
				name:       fmt.Sprintf("orders-%d", next.Connections),
				title:      fmt.Sprintf("Orders over HTTP, %d kept connections", next.Connections),
				unit:       "orders",
				candidates: []candidate{full.candidate(next), quick.candidate(next)},
				pairs:      []pair{{"accepted / parse and answer", 0, 1}},
			}
		})
		return err
	})
	return results, err
}

// overConnections runs a comparison for each number of connections.
func (s *testbed) overConnections(ctx context.Context, compare func(loadgen.Config) comparison) ([]Result, error) {
	var results []Result
	for _, connections := range s.opts.Connections {
		c := compare(loadgen.Config{Connections: connections})
		result, err := c.run(ctx, s)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

// servedHandler is one of the two handlers, listening.
type servedHandler struct {
	testbed *testbed
	name    string
	at      *listening
	admit   bool // orders reach Redis
	soldOut bool // before the first of them
	backlog int  // orders that wait in the stream before the first of them
}

// withHandlers opens both handlers, and closes them when fn returns.
func (s *testbed) withHandlers(ctx context.Context, fn func(full, quick servedHandler) error) (err error) {
	a, err := newAPI(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	full, err := listen(ctx, a.full)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, full.close()) }()
	quick, err := listen(ctx, a.quick)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, quick.close()) }()
	return fn(servedHandler{testbed: s, name: "accepted", at: full, admit: true},
		servedHandler{testbed: s, name: "parse and answer", at: quick})
}

// candidate sends loads to the handler. The load says how many buyers come, and how fast; the rest is filled in.
func (t servedHandler) candidate(f loadgen.Config) candidate {
	f.URL, f.Seed, f.Keys = "http://"+t.at.addr, t.testbed.opts.Seed, t.testbed.opts.Keys
	if len(f.Sales) == 0 {
		f.Sales = []string{saleID}
	}
	return candidate{
		name: t.name,
		prepare: func(ctx context.Context, share float64) error {
			f.First, f.Length = t.testbed.newBuyers(), t.testbed.opts.length(share)
			if err := t.testbed.clear(ctx); err != nil {
				return err
			}
			if t.soldOut {
				if err := t.testbed.sellOut(ctx); err != nil {
					return err
				}
			}
			if err := t.testbed.fillBacklog(ctx, t.backlog); err != nil {
				return err
			}
			return t.testbed.buyers.prepare(f) // last, because the server ends connections on which nothing comes
		},
		run:   func(context.Context) (Work, error) { return t.testbed.runLoad(t.status()) },
		check: t.check,
	}
}

// runLoad lets the gathered buyers go. All of them must get one status.
func (s *testbed) runLoad(status int) (Work, error) {
	result, err := s.buyers.start()
	if err != nil {
		return Work{}, err
	}
	count, err := answered(result, status)
	waits := result.Accepts
	if status >= http.StatusBadRequest {
		waits = result.Rejections
	}
	return Work{Count: count, Took: result.Took, Latency: quantiles(waits)}, err
}

func (t servedHandler) status() int {
	if t.soldOut {
		return http.StatusConflict
	}
	return http.StatusAccepted
}

func (t servedHandler) check(ctx context.Context, w *Work) error {
	if t.soldOut {
		return nil // every answer was 409, and nothing else could have changed
	}
	accepts := w.Count
	if !t.admit {
		accepts = 0
	} else if err := t.testbed.noteScript(ctx, w); err != nil {
		return err
	}
	return t.testbed.checkAccepts(ctx, accepts+int64(t.backlog))
}

// together runs so many goroutines that call one thing again and again until the time is over, and counts the calls.
func together(n int, length time.Duration, caller func(i int) func() error) (Work, error) {
	counts, errs := make([]int64, n), make([]error, n)
	began := time.Now()
	until := began.Add(length)
	var running sync.WaitGroup
	for i := range n {
		call := caller(i)
		running.Go(func() {
			for errs[i] == nil && time.Now().Before(until) {
				if errs[i] = call(); errs[i] == nil {
					counts[i]++
				}
			}
		})
	}
	running.Wait()
	w := Work{Took: time.Since(began)}
	for _, count := range counts {
		w.Count += count
	}
	return w, errors.Join(errs...)
}
