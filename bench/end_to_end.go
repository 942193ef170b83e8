package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sluice/pipeline/worker"
)

// benchEndToEnd measures what a shop needs: orders from the buyer's POST to the row in Postgres, with the api and one
// worker at work together, until the last row is in. Beside it stands the textbook's pipeline: a script for each
// request, a row for each message.
func benchEndToEnd(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	err = s.withHandlers(ctx, func(full, quick servedHandler) (err error) {
		simple := newTextbook(s)
		at, err := listen(ctx, simple)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, at.close()) }()
		results, err = s.overConnections(ctx, func(next load) comparison {
			return comparison{
				name:  fmt.Sprintf("end-to-end-%d", next.Connections),
				title: fmt.Sprintf("Orders from POST to row, %d kept connections", next.Connections),
				unit:  "orders",
				candidates: []candidate{
					h.endToEnd("sluice", full, next, h.startWorker),
					h.endToEnd("textbook", servedHandler{testbed: s, at: at}, next, simple.start),
					quick.candidate(next),
				},
				pairs: []pair{{"sluice / parse and answer", 0, 2}, {"sluice / textbook", 0, 1}},
			}
		})
		return err
	})
	return results, err
}

// endToEnd is a candidate that accepts orders and stores them at the same time. The clock stops when the stream is
// empty.
func (h *workload) endToEnd(
	name string, at servedHandler, next load, start func(context.Context) (stop func(), err error),
) candidate {
	sent := at.candidate(next)
	prepare := sent.prepare
	return candidate{
		name: name,
		prepare: func(ctx context.Context, share float64) error {
			if err := h.empty(ctx); err != nil {
				return err
			}
			return prepare(ctx, share)
		},
		run: func(ctx context.Context) (Work, error) {
			stop, err := start(ctx)
			if err != nil {
				return Work{}, err
			}
			defer stop()
			began := time.Now()
			work, err := h.testbed.runLoad(http.StatusAccepted)
			if err != nil {
				return work, err
			}
			err = h.awaitDrained(ctx)
			work.Took = time.Since(began)
			return work, err
		},
		check: func(ctx context.Context, w *Work) error {
			return h.testbed.checkRows(ctx, "orders", w.Count)
		},
	}
}

// awaitDrained returns when nothing is left in the stream.
func (h *workload) awaitDrained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	const look = 2 * time.Millisecond
	for {
		left, err := h.testbed.control.XLen(ctx, keys.Orders(h.testbed.sale.Partitions[0])).Result()
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(look)
	}
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
