package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/loadgen"
	"sluice/pipeline"
	"sluice/pipeline/worker"
)

// benchEndToEnd measures what a shop needs: orders from the buyer's POST to the row in Postgres, with the api and one
// worker at work together, until the last row is in. Beside it stand pipelines that a shop would build: the textbook's,
// a script for each request and a row for each message, and two on asynq, a row for each task or orders in groups.
func benchEndToEnd(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	err = s.withHandlers(ctx, func(full, quick servedHandler) (err error) {
		full.name = "sluice"
		simple := newTextbook(s)
		shops := []shop{
			{"textbook", simple, storing{simple.start, s.waiting}},
			s.asynqShop("asynq", false),
			s.asynqShop("asynq, grouped", true),
		}
		served, closeShops, err := s.serveShops(ctx, shops)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeShops()) }()
		results, err = s.overConnections(ctx, func(next loadgen.Config) comparison {
			c := comparison{
				name:       fmt.Sprintf("end-to-end-%d", next.Connections),
				title:      fmt.Sprintf("Orders from POST to row, %d kept connections", next.Connections),
				unit:       "orders",
				candidates: []candidate{h.endToEnd(full, next, h.oneWorker()), quick.candidate(next)},
				pairs:      []pair{{"sluice / parse and answer", 0, 1}},
			}
			for i, one := range shops {
				c.candidates = append(c.candidates, h.endToEnd(served[i], next, one.storing))
				c.pairs = append(c.pairs, pair{"sluice / " + one.name, 0, len(c.candidates) - 1})
			}
			return c
		})
		return err
	})
	return results, err
}

// shop is a pipeline to compare Sluice with.
type shop struct {
	name    string
	handler http.Handler
	storing storing
}

func (s *testbed) asynqShop(name string, grouped bool) shop {
	a := &asynqPipeline{testbed: s, grouped: grouped}
	return shop{name, a, storing{a.start, a.left}}
}

// serveShops has each shop listen.
func (s *testbed) serveShops(ctx context.Context, shops []shop) (served []servedHandler, end func() error, err error) {
	end = func() error {
		var errs []error
		for _, one := range served {
			errs = append(errs, one.at.close())
		}
		return errors.Join(errs...)
	}
	for _, one := range shops {
		at, err := listen(ctx, one.handler)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		served = append(served, servedHandler{testbed: s, name: one.name, at: at})
	}
	return served, end, nil
}

// storing is what stores the orders that a handler accepts.
type storing struct {
	start starter
	left  func(context.Context) (orders int64, err error) // that are not stored yet
}

// oneWorker is one worker of Sluice, as it is by default.
func (h *workload) oneWorker() storing { return storing{h.startWorker, h.testbed.waiting} }

// endToEnd is a candidate that accepts orders and stores them at the same time. The clock stops when none is left.
func (h *workload) endToEnd(
	at servedHandler, next loadgen.Config, by storing,
) candidate {
	sent := at.candidate(next)
	prepare := sent.prepare
	return candidate{
		name: at.name,
		prepare: func(ctx context.Context, share float64) error {
			if err := h.empty(ctx); err != nil {
				return err
			}
			return prepare(ctx, share)
		},
		run: func(ctx context.Context) (Work, error) {
			stop, err := by.start(ctx)
			if err != nil {
				return Work{}, err
			}
			defer stop()
			began := time.Now()
			work, err := h.testbed.runLoad(http.StatusAccepted)
			if err != nil {
				return work, err
			}
			err = awaitDrained(ctx, by.left)
			work.Took = time.Since(began)
			return work, err
		},
		check: func(ctx context.Context, w *Work) error {
			return h.testbed.checkRows(ctx, "orders", w.Count)
		},
	}
}

// awaitDrained returns when all orders are stored.
func awaitDrained(ctx context.Context, left func(context.Context) (int64, error)) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	const look = 2 * time.Millisecond
	for {
		orders, err := left(ctx)
		if err != nil || orders == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d orders were not stored: %w", orders, ctx.Err())
		case <-time.After(look):
		}
	}
}

// waiting is the number of orders in all streams.
func (s *testbed) waiting(ctx context.Context) (events int64, err error) {
	pipe := s.control.Pipeline()
	for p := range pipeline.Partition(partitions) {
		pipe.XLen(ctx, keys.Orders(p))
	}
	lengths, err := pipe.Exec(ctx)
	for _, length := range lengths {
		if length, ok := length.(*redis.IntCmd); ok {
			events += length.Val()
		}
	}
	return events, err
}

// startWorker starts the real worker, as it is by default.
func (h *workload) startWorker(ctx context.Context) (stop func(), err error) {
	w, err := worker.New(worker.Config{
		Redis: h.testbed.rdb, Reader: h.reader, Keys: keys, Store: h.testbed.store, Log: h.testbed.log,
		Options: worker.Options{Partitions: partitions, BatchSize: h.testbed.opts.Batch},
	})
	if err != nil {
		return nil, err
	}
	working, leave := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(working)
	}()
	return func() { leave(); <-ended }, nil
}
