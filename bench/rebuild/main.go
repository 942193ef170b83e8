// Command rebuild measures how long a sale with many live orders is closed after Redis was emptied, and after it was
// merely restarted. It runs on private servers, with every write flushed, and exits with 1 when the sale is wrong
// afterwards.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"sluice/bench/bigsale"
	"sluice/lua"
	"sluice/pipeline"
)

const (
	spare     = 1000 // units that nobody has ordered
	runLimit  = 15 * time.Minute
	lookEvery = time.Millisecond
)

func main() {
	orders := flag.Int("orders", 1_000_000, "live orders of the sale")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %s", runLimit))
	defer cancel()
	if err := run(ctx, *orders); err != nil {
		fmt.Fprintln(os.Stderr, "rebuild:", err)
		os.Exit(1)
	}
}

// stage is the sale, and what is measured of it.
type stage struct{ *bigsale.Stage }

func run(ctx context.Context, orders int) (err error) {
	big, err := bigsale.Open(ctx, orders, spare)
	s := &stage{big}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err != nil {
		return err
	}
	if err := s.Fill(ctx); err != nil {
		return err
	}
	if err := s.measure(ctx, "after FLUSHALL",
		func(ctx context.Context) error { return s.Redis.FlushAll(ctx).Err() }); err != nil {
		return err
	}
	if err := s.check(ctx, orders); err != nil {
		return err
	}
	for range 3 {
		if err := s.measure(ctx, "after a clean restart", s.Servers.Redis.Restart); err != nil {
			return err
		}
	}
	if err := s.measure(ctx, "after kill -9", func(ctx context.Context) error {
		return errors.Join(s.Servers.Redis.Kill(), s.Servers.Redis.Restart(ctx))
	}); err != nil {
		return err
	}
	return s.check(ctx, orders)
}

// measure strikes Redis and prints how long it takes from its first answer until the sale is open again, with a
// verifier running as in every api and worker.
func (s *stage) measure(ctx context.Context, name string, strike func(context.Context) error) error {
	verifying, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Verifier().Run(verifying)
	}()
	defer func() {
		stop()
		<-done
	}()
	if err := s.opened(ctx); err != nil {
		return err
	}
	bigsale.ResetPeak()
	runtime.GC()
	struck := time.Now()
	if err := strike(ctx); err != nil {
		return err
	}
	// while it loads its file it does not answer
	if err := wait(ctx, func() bool { return s.Redis.Ping(ctx).Err() == nil }); err != nil {
		return err
	}
	answered := time.Now()
	if err := s.opened(ctx); err != nil {
		return err
	}
	peak, redisPeak := bigsale.Peak(), s.RedisPeak(ctx)
	fmt.Fprintf(os.Stdout,
		"%-22s open %s after Redis answered (which took %s); peak memory: this process %s, Redis %s\n",
		name+":", bigsale.Round(time.Since(answered)), bigsale.Round(answered.Sub(struck)), peak, redisPeak)
	return nil
}

// opened waits until the sale is open for orders.
func (s *stage) opened(ctx context.Context) error {
	p := s.Sale.Partitions[0]
	return wait(ctx, func() bool {
		verified, err := lua.ReadTrust(ctx, s.Redis, pipeline.DefaultKeys.ForVerify(p, ""))
		return err == nil && verified.Trust == lua.Trusted &&
			s.Redis.Exists(ctx, pipeline.DefaultKeys.Sale(p, bigsale.SaleID)).Val() == 1
	})
}

func wait(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// check audits the sale.
func (s *stage) check(ctx context.Context, orders int) error {
	bigsale.ResetPeak()
	began := time.Now()
	report, err := s.Audit(ctx)
	if err != nil {
		return err
	}
	if !report.Clean() || !report.Exact || report.Live != int64(orders) || report.Stock != spare ||
		report.Buyers != int64(orders) {
		return fmt.Errorf("the audit found %+v", report)
	}
	fmt.Fprintf(os.Stdout, "%-22s clean and exact, in %s; peak memory: this process %s\n", "audit:",
		bigsale.Round(time.Since(began)), bigsale.Peak())
	return nil
}
