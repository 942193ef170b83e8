package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/worker"
)

// benchPersist measures a worker that empties a stream, against the persist statement alone and against a bare insert
// of the same rows into a table of the same shape (same columns, checks and indexes, but no counters, no watermark,
// nothing that makes it safe to repeat), with as many writers and rows per transaction.
func benchPersist(ctx context.Context, s *testbed, _ *Report) (results []Result, err error) {
	h, err := newWorkload(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, writers := range []int{1, 2} {
		c := comparison{
			name:  fmt.Sprintf("persist-%d", writers),
			title: fmt.Sprintf("Rows persisted, batches of %d, %d at once", s.opts.Batch, writers),
			unit:  "rows",
			candidates: []candidate{
				h.worker(writers),
				h.writer("persist statement alone", "orders", writers, h.persist),
				h.writer("bare insert", "bare_orders", writers, h.insertBare),
			},
			pairs: []pair{
				{"worker / bare insert", 0, 2},
				{"persist statement / bare insert", 1, 2},
				{"worker / persist statement", 0, 1},
			},
		}
		result, err := c.run(ctx, s)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// empty brings both stores back to before the first order.
func (h *workload) empty(ctx context.Context) error {
	if err := h.testbed.clear(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for _, statement := range []string{
		`truncate orders, watermarks, bare_orders`,
		`update sales set sold = 0`,
		`checkpoint`, // so that none falls into the round by itself
	} {
		if _, err := h.testbed.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// writer is a candidate that writes the events straight from memory.
func (h *workload) writer(name, table string, writers int,
	write func(context.Context, []pipeline.Event) error,
) candidate {
	return candidate{
		name: name,
		prepare: func(ctx context.Context, share float64) error {
			h.size(share)
			return h.empty(ctx)
		},
		run: func(ctx context.Context) (Work, error) { return h.writeAll(ctx, writers, write) },
		check: func(ctx context.Context, w *Work) error {
			return h.testbed.checkRows(ctx, table, w.Count)
		},
	}
}

func (h *workload) writeAll(ctx context.Context, writers int,
	write func(context.Context, []pipeline.Event) error,
) (Work, error) {
	batches := make(chan []pipeline.Event, len(h.now)/h.testbed.opts.Batch+1)
	for batch := range slices.Chunk(h.now, h.testbed.opts.Batch) {
		batches <- batch
	}
	close(batches)
	errs := make([]error, writers)
	var running sync.WaitGroup
	began := time.Now()
	for i := range writers {
		running.Go(func() {
			for batch := range batches {
				if errs[i] = write(ctx, batch); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return Work{Count: int64(len(h.now)), Took: time.Since(began)}, errors.Join(errs...)
}

func (h *workload) persist(ctx context.Context, events []pipeline.Event) error {
	// nothing is verified here: it stays the first generation
	outcomes, err := h.testbed.store.PersistOrders(ctx, 1, events)
	if err != nil {
		return err
	}
	for _, outcome := range outcomes {
		if outcome != pipeline.PersistInserted {
			return fmt.Errorf("%s instead of %s", outcome, pipeline.PersistInserted)
		}
	}
	return nil
}

// worker is the real worker on a stream with every event. The clock stops when the stream is empty, that is when the
// last batch is committed, acknowledged, deleted and unlocked.
func (h *workload) worker(lanes int) candidate {
	return candidate{
		name: "worker",
		prepare: func(ctx context.Context, share float64) error {
			h.size(share)
			if err := h.empty(ctx); err != nil {
				return err
			}
			return h.fillStream(ctx)
		},
		run: func(ctx context.Context) (Work, error) { return h.work(ctx, lanes) },
		check: func(ctx context.Context, w *Work) error {
			return errors.Join(
				h.stop(),
				h.testbed.checkRows(ctx, "orders", w.Count),
				h.testbed.checkCounters(ctx, w.Count),
				h.testbed.checkDrained(ctx),
			)
		},
	}
}

// work starts a worker and returns when it has emptied the stream; stop ends it.
func (h *workload) work(ctx context.Context, lanes int) (Work, error) {
	count := &countingStore{Store: h.testbed.store, done: make(chan struct{})}
	count.left.Store(int64(len(h.now)))
	worker, err := worker.New(worker.Config{
		Redis: h.testbed.rdb, Reader: h.reader, Keys: keys, Store: count, Log: h.testbed.log,
		Options: worker.Options{Partitions: partitions, BatchSize: h.testbed.opts.Batch, Concurrency: lanes},
	})
	if err != nil {
		return Work{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	working, leave := context.WithCancel(ctx)
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		worker.Run(working)
	}()
	h.stop = func() error {
		leave()
		<-ended
		cancel()
		return nil
	}
	err = h.awaitEmpty(ctx, count.done)
	work := Work{Count: int64(len(h.now)), Took: time.Since(began)}
	if err != nil {
		err = errors.Join(err, h.stop())
	}
	return work, err
}

// awaitEmpty asks for the stream's length only once the last row is in, so that the asking costs the worker nothing.
func (h *workload) awaitEmpty(ctx context.Context, persisted <-chan struct{}) error {
	select {
	case <-persisted:
	case <-ctx.Done():
		return fmt.Errorf("the worker did not persist everything: %w", ctx.Err())
	}
	const look = 200 * time.Microsecond
	stream := keys.Orders(h.testbed.sale.Partitions[0])
	for {
		left, err := h.testbed.control.XLen(ctx, stream).Result()
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(look)
	}
}

// countingStore signals when the last of the events is committed.
type countingStore struct {
	worker.Store
	left atomic.Int64
	done chan struct{}
}

func (c *countingStore) PersistMarked(ctx context.Context, g pipeline.Generation,
	events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	outcomes, marks, err := c.Store.PersistMarked(ctx, g, events)
	if err == nil && c.left.Add(-int64(len(events))) == 0 {
		close(c.done)
	}
	return outcomes, marks, err
}
