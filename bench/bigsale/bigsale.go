// Package bigsale is a sale with many live orders over private servers, with every write flushed, and what it costs in
// memory to work with it.
package bigsale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	// SaleID is the sale's id.
	SaleID = "big"
	// Partitions is how many the installation has: as shipped.
	Partitions = 16
)

// Stage is one sale over private servers.
type Stage struct {
	Servers *localservers.Servers
	Redis   redis.UniversalClient
	Store   *db.Store
	Sale    *pipeline.Sale
	Log     *slog.Logger
	Orders  int // live ones
	pool    *pgxpool.Pool
}

// Open starts the servers and creates a sale that has room for so many orders and spare units. Close the stage also
// after an error.
func Open(ctx context.Context, orders, spare int) (*Stage, error) {
	s := &Stage{Orders: orders, Log: process.NewLogger(os.Stderr, config.Config{})}
	return s, s.open(ctx, spare)
}

func (s *Stage) open(ctx context.Context, spare int) (err error) {
	if s.Servers, err = localservers.Start(ctx); err != nil {
		return err
	}
	if s.Redis, err = process.OpenRedis(config.Config{RedisURL: s.Servers.Redis.URL()}); err != nil {
		return err
	}
	url := s.Servers.Postgres.URL()
	if err = db.Migrate(ctx, url); err != nil {
		return err
	}
	if s.Store, err = db.Open(ctx, url, db.Options{}); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	if err = s.Verifier().Ensure(ctx); err != nil {
		return err
	}
	now := time.Now()
	s.Sale = &pipeline.Sale{
		ID: SaleID, Title: "A big sale", Total: int64(s.Orders + spare), MaxQuantity: 1,
		OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(24 * time.Hour),
	}
	return sales.NewPublisher(s.Redis, pipeline.DefaultKeys, s.Store, Partitions, s.Log).Create(ctx, s.Sale)
}

// Verifier is the verifier of one process.
func (s *Stage) Verifier() *recovery.Verifier {
	return recovery.NewVerifier(process.NewParts(s.Redis, s.Store, Partitions, s.Log).VerifierConfig())
}

// Fill copies the orders into Postgres, as workers would have persisted them, with the sale's counter and its
// watermark, and prints how long that took. Redis does not know of them until the sale is rebuilt.
func (s *Stage) Fill(ctx context.Context) error {
	began := time.Now()
	p := s.Sale.Partitions[0]
	at := time.Now().Add(-time.Minute)
	n := 0
	_, err := s.pool.CopyFrom(ctx, pgx.Identifier{"orders"},
		[]string{"sale_id", "id", "number", "user_id", "quantity", "status", "partition", "sequence", "accepted_at"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if n == s.Orders {
				return nil, nil
			}
			n++
			id, err := uuid.NewV7()
			return []any{SaleID, id, int64(n), Buyer(n), 1, "confirmed", int16(p), int64(n), at}, err
		}))
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`update sales set sold = $2 where id = $1`, SaleID, s.Orders)
	batch.Queue(`insert into watermarks (sale_id, partition, seq) values ($1, $2, $3)`, SaleID, int16(p), s.Orders)
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if _, err = s.pool.Exec(ctx, `vacuum analyze orders`); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d live orders copied into Postgres in %s; %d cores, %s\n", s.Orders,
		Round(time.Since(began)), runtime.NumCPU(), runtime.Version())
	return nil
}

// Buyer is the id of the buyer of the n-th order, from 1.
func Buyer(n int) string { return "buyer-" + strconv.Itoa(n) }

// Audit audits the sale.
func (s *Stage) Audit(ctx context.Context) (*audit.Report, error) {
	return audit.NewAuditor(s.Redis, pipeline.DefaultKeys, s.Store).Audit(ctx, s.Sale)
}

// RedisPeak is the most memory that Redis has used.
func (s *Stage) RedisPeak(ctx context.Context) string {
	for line := range strings.Lines(s.Redis.Info(ctx, "memory").Val()) {
		if text, ok := strings.CutPrefix(line, "used_memory_peak:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return megabytes(n)
		}
	}
	return "unknown"
}

// Close ends the servers.
func (s *Stage) Close() error {
	if s.pool != nil {
		s.pool.Close()
	}
	if s.Store != nil {
		s.Store.Close()
	}
	var errs []error
	if s.Redis != nil {
		errs = append(errs, s.Redis.Close())
	}
	if s.Servers != nil {
		errs = append(errs, s.Servers.Close())
	}
	return errors.Join(errs...)
}

// ResetPeak lets the kernel count the peak of our memory anew (proc(5), clear_refs); elsewhere the peak is that of the
// whole run.
func ResetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// PeakBytes is the most memory that this process had resident (VmHWM); 0 where the system does not tell.
func PeakBytes() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// Peak is PeakBytes as a text.
func Peak() string {
	if n := PeakBytes(); n > 0 {
		return megabytes(n)
	}
	return "unknown"
}

func megabytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// Round is a time as it is printed.
func Round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
