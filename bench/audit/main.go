// Command audit measures what an audit of a big sale takes: its time, the memory of the process that audits, and how
// many orders fewer a sale accepts while audits run one after the other. It runs on private servers, with every write
// flushed, and exits with 1 where an audit finds what is not so, or does not find what is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"sluice/bench/bigsale"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
)

const (
	spare    = 20_000_000 // units that are left for the buyers of the comparison
	runLimit = 2 * time.Hour
	// mostMemory is what a process may take that audits a sale of ten million orders.
	mostMemory = 256 << 20
)

type options struct {
	orders, wrong, rounds, clients int
	length                         time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.orders, "orders", 1_000_000, "live orders of the sale")
	flag.IntVar(&o.wrong, "wrong", 100, "slots that are taken away before the second audit")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds with audits and as many without; 0: none")
	flag.IntVar(&o.clients, "clients", 128, "buyers who order at once")
	flag.DurationVar(&o.length, "length", 4*time.Second, "of a round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %s", runLimit))
	defer cancel()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(1)
	}
}

// stage is the sale, and what is measured of it.
type stage struct {
	*bigsale.Stage
	*options
}

func run(ctx context.Context, o *options) (err error) {
	big, err := bigsale.Open(ctx, o.orders, spare)
	s := &stage{big, o}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.measure(ctx, "clean", 0); err != nil {
		return err
	}
	if err := s.tampered(ctx); err != nil {
		return err
	}
	return s.compareRates(ctx)
}

// load fills both stores: Redis is rebuilt from Postgres.
func (s *stage) load(ctx context.Context) error {
	if err := s.Fill(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := s.Redis.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(); err != nil {
		return err
	}
	if err := s.Redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := s.Verifier().Ensure(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "Redis was rebuilt in %s and uses %s\n", bigsale.Round(time.Since(began)), s.RedisPeak(ctx))
	return nil
}

// measure audits the sale once, and expects so many orders without a slot.
func (s *stage) measure(ctx context.Context, name string, lost int64) error {
	debug.FreeOSMemory()
	bigsale.ResetPeak()
	before := bigsale.Peak()
	began := time.Now()
	report, err := s.Audit(ctx)
	if err != nil {
		return err
	}
	took, peak := time.Since(began), bigsale.PeakBytes()
	if !report.Exact || report.LostBuyers != lost || report.Clean() != (lost == 0) || report.Drift != 0 ||
		report.Live != int64(s.orders) || report.Buyers != int64(s.orders)-lost || report.StrayBuyers != 0 {
		return fmt.Errorf("%s: the audit found %+v", name, report)
	}
	fmt.Fprintf(os.Stdout, "%-26s %s; resident memory of this process: %s before, %d MiB at most\n", name+":", bigsale.Round(took), before,
		peak>>20)
	if peak > mostMemory {
		return fmt.Errorf("%s: more than %d MiB", name, mostMemory>>20)
	}
	return nil
}

// tampered takes slots away, has them found missing, and puts them back.
func (s *stage) tampered(ctx context.Context) error {
	p := s.Sale.Partitions[0]
	buyers := pipeline.DefaultKeys.Buyers(p, bigsale.SaleID)
	taken := map[string]string{}
	for i := range s.wrong {
		user := bigsale.Buyer(1 + i*(s.orders/s.wrong))
		slot, err := s.Redis.HGet(ctx, buyers, user).Result()
		if err != nil {
			return err
		}
		if _, err := lua.ParseSlot(slot); err != nil {
			return err
		}
		taken[user] = slot
		if err := s.Redis.HDel(ctx, buyers, user).Err(); err != nil {
			return err
		}
	}
	if err := s.measure(ctx, fmt.Sprintf("%d slots are gone", s.wrong), int64(s.wrong)); err != nil {
		return err
	}
	return s.Redis.HSet(ctx, buyers, taken).Err()
}

// auditing audits again and again until the context ends, and returns how often that was.
func (s *stage) auditing(ctx context.Context, auditor *audit.Auditor) (int, error) {
	audits := 0
	for ctx.Err() == nil {
		report, err := auditor.Audit(ctx, s.Sale)
		switch {
		case ctx.Err() != nil:
			return audits, nil //nolint:nilerr // the round is over
		case err != nil:
			return audits, err
		case !report.Clean() || !report.Exact:
			return audits, fmt.Errorf("while buyers order, the audit found %+v", report)
		}
		audits++
	}
	return audits, nil
}
