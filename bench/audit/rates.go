package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/worker"
)

// compareRates lets buyers order in rounds, with audits running and without in turns, while a worker persists the
// orders. The audits of a round go on in the next one that has any: each is of the whole sale.
func (s *stage) compareRates(ctx context.Context) error {
	if s.rounds == 0 {
		return nil
	}
	stop, err := s.work(ctx)
	if err != nil {
		return err
	}
	defer stop()
	gate := admission.New(s.Redis, pipeline.DefaultKeys, admission.Options{RequestTimeout: time.Minute}, nil, s.Log)
	defer func() { _ = gate.Close(context.WithoutCancel(ctx)) }()
	if _, err := s.accept(ctx, gate); err != nil { // a warm-up
		return err
	}
	var ratios []float64
	for range s.rounds {
		without, err := s.accept(ctx, gate)
		if err != nil {
			return err
		}
		with, audits, err := s.acceptWhileAudited(ctx, gate)
		if err != nil {
			return err
		}
		ratios = append(ratios, with/without)
		fmt.Fprintf(os.Stdout, "accepts/s: %.0f, and %.0f while audits run (%d ended): %.2f\n", without, with, audits, with/without)
	}
	slices.Sort(ratios)
	fmt.Fprintf(os.Stdout, "ratio of accepts/s with audits / without: median %.2f (%.2f to %.2f)\n", ratios[len(ratios)/2], ratios[0],
		ratios[len(ratios)-1])
	if err := s.drained(ctx); err != nil {
		return err
	}
	report, err := s.Audit(ctx)
	if err != nil || !report.Clean() || !report.Exact {
		return fmt.Errorf("in the end: %+v, %w", report, err)
	}
	fmt.Fprintf(os.Stdout, "in the end: %d orders, clean and exact\n", report.Live)
	return nil
}

// work runs a worker until stop is called.
func (s *stage) work(ctx context.Context) (stop func(), err error) {
	reader, err := process.OpenRedis(config.Config{RedisURL: s.Servers.Redis.URL()})
	if err != nil {
		return nil, err
	}
	w, err := worker.New(worker.Config{
		Redis: s.Redis, Reader: reader, Keys: pipeline.DefaultKeys, Store: s.Store,
		Options: worker.Options{Partitions: 16}, Log: s.Log,
	})
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
		_ = reader.Close()
	}, nil
}

var buyers atomic.Int64

// accept lets buyers order for one round, and returns how many accepts there were in a second.
func (s *stage) accept(ctx context.Context, gate *admission.Controller) (float64, error) {
	if err := s.drained(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	var accepted atomic.Int64
	var all errgroup.Group
	for range s.clients {
		all.Go(func() error {
			for time.Since(began) < s.length {
				request := pipeline.OrderRequest{UserID: fmt.Sprint("new-", buyers.Add(1)), Quantity: 1}
				decision, err := gate.Admit(ctx, s.Sale, request)
				if err != nil || decision.Result != admission.Accepted {
					return fmt.Errorf("got %s instead of accepted: %w", decision.Result, err)
				}
				accepted.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	return float64(accepted.Load()) / time.Since(began).Seconds(), err
}

func (s *stage) acceptWhileAudited(
	ctx context.Context, gate *admission.Controller,
) (rate float64, audits int, err error) {
	if err := s.drained(ctx); err != nil {
		return 0, 0, err
	}
	auditing, stop := context.WithCancel(ctx)
	defer stop()
	var beside errgroup.Group
	beside.Go(func() (err error) {
		audits, err = s.auditing(auditing, audit.NewAuditor(s.Redis, pipeline.DefaultKeys, s.Store))
		return err
	})
	rate, err = s.accept(ctx, gate)
	stop()
	return rate, audits, errors.Join(err, beside.Wait())
}

// drained waits until the worker has persisted everything.
func (s *stage) drained(ctx context.Context) error {
	for {
		left, err := s.Redis.XLen(ctx, pipeline.DefaultKeys.Orders(s.Sale.Partitions[0])).Result()
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
