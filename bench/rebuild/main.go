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
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/config"
	"sluice/internal/localservers"
	"sluice/internal/process"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	saleID     = "big"
	partitions = 16 // as shipped
	runLimit   = 15 * time.Minute
	lookEvery  = time.Millisecond
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

// stage is one sale over private servers, and the verifier of one process.
type stage struct {
	servers *localservers.Servers
	rdb     redis.UniversalClient
	store   *db.Store
	pool    *pgxpool.Pool
	sale    *pipeline.Sale
}

func run(ctx context.Context, orders int) (err error) {
	s := &stage{}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx, orders); err != nil {
		return err
	}
	began := time.Now()
	if err := s.fill(ctx, orders); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d live orders copied into Postgres in %s; %d cores, %s\n", orders,
		round(time.Since(began)), runtime.NumCPU(), runtime.Version())
	if err := s.measure(ctx, "after FLUSHALL",
		func(ctx context.Context) error { return s.rdb.FlushAll(ctx).Err() }); err != nil {
		return err
	}
	if err := s.check(ctx, orders); err != nil {
		return err
	}
	for range 3 {
		if err := s.measure(ctx, "after a clean restart", s.servers.Redis.Restart); err != nil {
			return err
		}
	}
	if err := s.measure(ctx, "after kill -9", func(ctx context.Context) error {
		return errors.Join(s.servers.Redis.Kill(), s.servers.Redis.Restart(ctx))
	}); err != nil {
		return err
	}
	return s.check(ctx, orders)
}

func (s *stage) open(ctx context.Context, orders int) (err error) {
	if s.servers, err = localservers.Start(ctx); err != nil {
		return err
	}
	if s.rdb, err = process.OpenRedis(config.Config{RedisURL: s.servers.Redis.URL()}); err != nil {
		return err
	}
	url := s.servers.Postgres.URL()
	if err = db.Migrate(ctx, url); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, url, db.Options{}); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	if err = s.verifier().Ensure(ctx); err != nil {
		return err
	}
	now := time.Now()
	s.sale = &pipeline.Sale{
		ID: saleID, Title: "A big sale", Total: int64(orders) + 1000, MaxQuantity: 1, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour),
	}
	return sales.NewPublisher(s.rdb, pipeline.DefaultKeys, s.store, partitions,
		process.NewLogger(os.Stderr, config.Config{})).Create(ctx, s.sale)
}

func (s *stage) verifier() *recovery.Verifier {
	return recovery.NewVerifier(process.NewParts(s.rdb, s.store, partitions,
		process.NewLogger(os.Stderr, config.Config{})).VerifierConfig())
}

// fill copies the orders into Postgres, as workers would have persisted them, with the sale's counter and its
// watermark.
func (s *stage) fill(ctx context.Context, orders int) error {
	p := s.sale.Partitions[0]
	at := time.Now().Add(-time.Minute)
	n := 0
	_, err := s.pool.CopyFrom(ctx, pgx.Identifier{"orders"},
		[]string{"sale_id", "id", "number", "user_id", "quantity", "status", "partition", "sequence", "accepted_at"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if n == orders {
				return nil, nil
			}
			n++
			id, err := uuid.NewV7()
			return []any{saleID, id, int64(n), "buyer-" + strconv.Itoa(n), 1, "confirmed", int16(p), int64(n), at}, err
		}))
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`update sales set sold = $2 where id = $1`, saleID, orders)
	batch.Queue(`insert into watermarks (sale_id, partition, seq) values ($1, $2, $3)`, saleID, int16(p), orders)
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `vacuum analyze orders`)
	return err
}

// measure strikes Redis and prints how long it takes from its first answer until the sale is open again, with a
// verifier running as in every api and worker.
func (s *stage) measure(ctx context.Context, name string, strike func(context.Context) error) error {
	verifying, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.verifier().Run(verifying)
	}()
	defer func() {
		stop()
		<-done
	}()
	if err := s.opened(ctx); err != nil {
		return err
	}
	resetPeak()
	runtime.GC()
	struck := time.Now()
	if err := strike(ctx); err != nil {
		return err
	}
	// while it loads its file it does not answer
	if err := wait(ctx, func() bool { return s.rdb.Ping(ctx).Err() == nil }); err != nil {
		return err
	}
	answered := time.Now()
	if err := s.opened(ctx); err != nil {
		return err
	}
	peak, redisPeak := peakMemory(), s.redisPeak(ctx)
	fmt.Fprintf(os.Stdout,
		"%-22s open %s after Redis answered (which took %s); peak memory: this process %s, Redis %s\n",
		name+":", round(time.Since(answered)), round(answered.Sub(struck)), peak, redisPeak)
	return nil
}

// opened waits until the sale is open for orders.
func (s *stage) opened(ctx context.Context) error {
	p := s.sale.Partitions[0]
	return wait(ctx, func() bool {
		verified, err := lua.ReadTrust(ctx, s.rdb, pipeline.DefaultKeys.ForVerify(p, ""))
		return err == nil && verified.Trust == lua.Trusted &&
			s.rdb.Exists(ctx, pipeline.DefaultKeys.Sale(p, saleID)).Val() == 1
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
	resetPeak()
	began := time.Now()
	report, err := audit.NewAuditor(s.rdb, pipeline.DefaultKeys, s.store).Audit(ctx, s.sale)
	if err != nil {
		return err
	}
	if !report.Clean() || !report.Exact || report.Live != int64(orders) || report.Stock != 1000 ||
		report.Buyers != int64(orders) {
		return fmt.Errorf("the audit found %+v", report)
	}
	fmt.Fprintf(os.Stdout, "%-22s clean and exact, in %s; peak memory: this process %s\n", "audit:",
		round(time.Since(began)), peakMemory())
	return nil
}

func (s *stage) redisPeak(ctx context.Context) string {
	for line := range strings.Lines(s.rdb.Info(ctx, "memory").Val()) {
		if text, ok := strings.CutPrefix(line, "used_memory_peak:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return megabytes(n)
		}
	}
	return "unknown"
}

func (s *stage) close() error {
	if s.pool != nil {
		s.pool.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	var errs []error
	if s.rdb != nil {
		errs = append(errs, s.rdb.Close())
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	return errors.Join(errs...)
}

// resetPeak lets the kernel count the peak of our memory anew (proc(5), clear_refs); elsewhere the peak is that of
// the whole run.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakMemory is the most memory that this process had resident.
func peakMemory() string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return megabytes(n << 10)
		}
	}
	return "unknown"
}

func megabytes(n int64) string { return strconv.FormatInt(n>>20, 10) + " MiB" }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
