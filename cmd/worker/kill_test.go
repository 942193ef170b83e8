package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// site is a whole installation with real processes: private servers, and workers that can be killed.
type site struct {
	servers *localservers.Servers
	binary  string
	rdb     *redis.Client
	store   *db.Store
	sale    *pipeline.Sale
}

func newSite(t *testing.T, stock int64) *site {
	t.Helper()
	ctx := t.Context()
	servers, err := localservers.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	if err := db.Migrate(ctx, servers.Postgres.URL()); err != nil {
		t.Fatal(err)
	}
	store, err := db.Open(ctx, servers.Postgres.URL(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	s := &site{
		servers: servers, store: store, rdb: testkit.Client(t, servers.Redis.URL()), binary: build(t),
		sale: &pipeline.Sale{
			ID: "drop-1", Title: "Drop", Total: stock, MaxQuantity: 1,
			OpensAt: time.Now().Add(-time.Hour), ClosesAt: time.Now().Add(time.Hour),
		},
	}
	if _, err := store.EnsurePartitions(ctx, 16); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	if err := recovery.EnsureVerified(ctx, s.rdb, pipeline.DefaultKeys, store, 16, quiet); err != nil {
		t.Fatal(err)
	}
	publisher := sales.NewPublisher(s.rdb, pipeline.DefaultKeys, store, 16, quiet)
	if err := publisher.Create(ctx, s.sale); err != nil {
		t.Fatal(err)
	}
	return s
}

// build compiles the worker once per test: what is killed is the program that ships.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the worker: %v\n%s", err, out)
	}
	return binary
}

func (s *site) startWorker(t *testing.T, settings ...string) *localservers.RunningProgram {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "worker.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("a worker's log:\n%s", text)
		}
		_ = log.Close()
	})
	worker, err := s.servers.Run(localservers.Program{
		Name: "worker", Path: s.binary, Stdout: log, Stderr: log,
		Env: append(os.Environ(), append(settings, "REDIS_URL="+s.servers.Redis.URL(),
			"DATABASE_URL="+s.servers.Postgres.URL())...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

// accept has so many buyers order, all at once as far as the machine can.
func (s *site) accept(t *testing.T, buyers int) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	admission := admission.New(s.rdb, pipeline.DefaultKeys, admission.Options{RequestTimeout: time.Minute}, nil, log)
	var wg sync.WaitGroup
	for i := range buyers {
		wg.Go(func() {
			request := pipeline.OrderRequest{UserID: fmt.Sprintf("buyer-%d", i), Quantity: 1}
			decision, err := admission.Admit(context.Background(), s.sale, request)
			if err != nil || decision.Result != "accepted" {
				t.Errorf("buyer %d: got %s, %v, want accepted", i, decision.Result, err)
			}
		})
	}
	wg.Wait()
	if err := admission.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *site) pending(t *testing.T) int64 {
	t.Helper()
	summary, err := s.rdb.XPending(t.Context(), pipeline.DefaultKeys.Orders(s.sale.Partitions[0]), pipeline.Group).Result()
	if err != nil {
		return 0 // no worker has made the group yet
	}
	return summary.Count
}

func (s *site) audit(t *testing.T) *audit.Report {
	t.Helper()
	report, err := audit.NewAuditor(s.rdb, pipeline.DefaultKeys, s.store).Audit(t.Context(), s.sale)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (s *site) settled(t *testing.T) bool {
	t.Helper()
	length, err := s.rdb.XLen(t.Context(), pipeline.DefaultKeys.Orders(s.sale.Partitions[0])).Result()
	return err == nil && length == 0
}

// joined reports whether so many workers have a heartbeat.
func (s *site) joined(t *testing.T, workers int) bool {
	t.Helper()
	alive, err := s.rdb.Keys(t.Context(), pipeline.DefaultKeys.Worker(s.sale.Partitions[0], "*")).Result()
	return err == nil && len(alive) == workers
}

// acceptAhead has buyers order while the workers stand still, and then lets the workers fetch whole batches that a
// Postgres which does not answer keeps in their hands.
func (s *site) acceptAhead(t *testing.T, buyers int, workers ...*localservers.RunningProgram) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range workers {
		must(w.Pause())
	}
	// A read that still waits in Redis would be served the first few orders, and a lane with a few orders fetches no more.
	testkit.Eventually(t, time.Minute, "no read waits", func() bool {
		info, err := s.rdb.Info(t.Context(), "clients").Result()
		return err == nil && strings.Contains(info, "blocked_clients:0")
	})
	s.accept(t, buyers)
	must(s.servers.Postgres.Pause())
	for _, w := range workers {
		must(w.Resume())
	}
}

// TestKillEveryWorker proves I4 and I6 for workers: all of them die with thousands of orders in their hands, in the
// middle of transactions, and a single new one brings every order home, once.
func TestKillEveryWorker(t *testing.T) {
	t.Parallel()
	const buyers, doomed = 6000, 2
	s := newSite(t, buyers)
	var workers []*localservers.RunningProgram
	for range doomed {
		// Many lanes: each has its first read in hand, which is a batch shared out over the partitions.
		workers = append(workers, s.startWorker(t, "WORKER_BATCH_SIZE=1000", "WORKER_CONCURRENCY=24"))
	}
	testkit.Eventually(t, time.Minute, "both workers have joined", func() bool { return s.joined(t, doomed) })
	s.acceptAhead(t, buyers, workers...)
	testkit.Eventually(t, time.Minute, "thousands are pending", func() bool { return s.pending(t) >= 2000 })
	for _, w := range workers {
		if err := w.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	inHand := s.pending(t)
	if err := s.servers.Postgres.Resume(); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	s.startWorker(t)
	testkit.Eventually(t, 2*time.Minute, "the stream is settled", func() bool { return s.settled(t) })
	t.Logf("%d orders were in dead hands; a new worker had all %d persisted after %s (promised: 20s)",
		inHand, buyers, time.Since(began).Round(100*time.Millisecond))

	report := s.audit(t)
	if !report.Exact || !report.Clean() {
		t.Errorf("the audit found %q (exact: %t)", report.Findings, report.Exact)
	}
	if report.Live != buyers || report.Orders != buyers || report.Stock != 0 {
		t.Errorf("got %d live units in %d rows and a stock of %d, want %d, %d, 0", report.Live, report.Orders, report.Stock,
			buyers, buyers)
	}
}

// TestStopHandsOver proves that a worker that is told to stop leaves nothing behind: it finishes or hands over what it
// has, and takes its name out of the group.
func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	const buyers = 3000
	s := newSite(t, buyers)
	first := s.startWorker(t, "WORKER_BATCH_SIZE=500")
	testkit.Eventually(t, time.Minute, "the worker has joined", func() bool { return s.joined(t, 1) })
	s.acceptAhead(t, buyers, first)
	testkit.Eventually(t, time.Minute, "events are in the worker's hands", func() bool { return s.pending(t) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := first.Stop(ctx); err != nil {
		t.Fatalf("the worker did not stop by itself: %v", err)
	}
	if s.joined(t, 1) {
		t.Error("the worker has gone and its heartbeat has not")
	}
	handedOver := s.pending(t)
	if handedOver == 0 {
		t.Error("nothing was handed over: the worker had a batch in hand that Postgres did not take")
	}
	if err := s.servers.Postgres.Resume(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.startWorker(t)
	testkit.Eventually(t, 2*time.Minute, "the stream is settled", func() bool { return s.settled(t) })
	t.Logf("%d orders were handed over and persisted within %s", handedOver, time.Since(began).Round(100*time.Millisecond))
	if report := s.audit(t); !report.Clean() || report.Live != buyers {
		t.Errorf("the audit found %q with %d live units, want none and %d", report.Findings, report.Live, buyers)
	}
}
