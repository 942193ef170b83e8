package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/localservers"
	"sluice/internal/programs"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	disasterSale       = "drop"
	disasterPartitions = 16
	disasterBuyers     = 32 // at once
	disasterLimit      = 5 * time.Minute
)

// disaster is two apis and a worker, of which everything dies at once while Postgres has none of the orders.
type disaster struct {
	*testing.T
	servers *localservers.Servers
	rdb     *redis.Client
	client  *http.Client
	sale    *pipeline.Sale
	dirs    []string // of the apis' journals
	running []*programs.Process
	onLine  func(programs.Line) // gets what the processes write
}

// TestEverythingDiesWhilePostgresIsAway: Postgres is dead while a whole sale is sold; then every api and worker gets
// SIGKILL, and Redis loses everything. Nothing is left of the orders but the apis' journals, and that is enough: each
// order with a receipt has its row, and no newcomer gets a unit. SLUICE_DISASTER_ACCEPTS and
// SLUICE_DISASTER_AWAY make it as big, and as long, as one likes.
func TestEverythingDiesWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	accepts, away := 2000, 5*time.Second
	var err error
	if text := os.Getenv("SLUICE_DISASTER_ACCEPTS"); text != "" {
		if accepts, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("SLUICE_DISASTER_AWAY"); text != "" {
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	d := newDisaster(t, accepts)
	d.launch()
	if err := d.servers.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	told := d.sell(accepts)
	sold := time.Since(died)
	time.Sleep(away - sold)
	t.Logf("Postgres is dead for %s; %d buyers have a receipt after %s", time.Since(died), len(told), sold)
	for _, p := range d.running {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := d.servers.Postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.launch()
	newcomers := d.newcomers()
	d.settled(told)
	t.Logf("every order has its row %s after Redis lost them", time.Since(began))
	if n := newcomers(); n != 0 {
		t.Errorf("%d newcomers got units that were sold", n)
	}
}

func newDisaster(t *testing.T, units int) *disaster {
	t.Helper()
	servers, err := localservers.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	if err := db.Migrate(t.Context(), servers.Postgres.URL()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &disaster{
		T: t, servers: servers, rdb: testkit.Client(t, servers.Redis.URL()),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: disasterBuyers}},
		onLine: func(programs.Line) {},
		dirs:   []string{filepath.Join(dir, "1"), filepath.Join(dir, "2")},
	}
	store, err := db.Open(t.Context(), servers.Postgres.URL(), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := slog.New(slog.DiscardHandler)
	err = recovery.EnsureVerified(t.Context(), d.rdb, pipeline.DefaultKeys, store, disasterPartitions, log)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d.sale = &pipeline.Sale{
		ID: disasterSale, Title: "Drop", Total: int64(units), MaxQuantity: 1, OpensAt: now.Add(-time.Hour),
		ClosesAt: now.Add(24 * time.Hour),
	}
	publisher := sales.NewPublisher(d.rdb, pipeline.DefaultKeys, store, disasterPartitions, log)
	if err := publisher.Create(t.Context(), d.sale); err != nil {
		t.Fatal(err)
	}
	return d
}

// launch starts two apis and a worker, and waits until they are ready.
func (d *disaster) launch() {
	d.Helper()
	d.running = nil
	for name, journal := range map[string]string{"api-1": d.dirs[0], "api-2": d.dirs[1], "worker": ""} {
		program, _, _ := strings.Cut(name, "-")
		p, err := programs.Launch(d.servers, programs.Program{
			Name: name, Args: []string{program}, OnLine: d.onLine, Environ: append(programs.Environ(),
				"REDIS_URL="+d.servers.Redis.URL(), "DATABASE_URL="+d.servers.Postgres.URL(), "DURABILITY=fsync",
				"AUTH_MODE=dev", "LOG_FORMAT=json", "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
				"STREAM_MAX_LAG=1000000", "ACCEPT_JOURNAL="+journal),
		})
		if err != nil {
			d.Fatal(err)
		}
		d.Cleanup(func() { _ = p.Kill() })
		d.running = append(d.running, p)
	}
	ctx, cancel := context.WithTimeout(d.Context(), disasterLimit)
	defer cancel()
	for _, p := range d.running {
		if err := p.Await(ctx); err != nil {
			d.Fatal(err)
		}
	}
}

// sell lets so many buyers order, each until there is an answer, and returns the ids of the orders that they were told.
func (d *disaster) sell(units int) map[string]bool {
	d.Helper()
	told := map[string]bool{}
	var mu sync.Mutex // protects told
	var next atomic.Int64
	var buyers sync.WaitGroup
	fronts := d.fronts()
	until := time.Now().Add(disasterLimit)
	for range disasterBuyers {
		buyers.Go(func() {
			for n := next.Add(1); n <= int64(units) && time.Now().Before(until); {
				status, id := d.order(fronts[int(n)%len(fronts)], fmt.Sprint("buyer-", n))
				if status != http.StatusAccepted {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				mu.Lock()
				told[id] = true
				mu.Unlock()
				n = next.Add(1)
			}
		})
	}
	buyers.Wait()
	if len(told) != units {
		d.Fatalf("%d buyers have a receipt, want %d", len(told), units)
	}
	return told
}

// newcomers lets others order until it is stopped, and returns how many were accepted.
func (d *disaster) newcomers() (stop func() int64) {
	var accepted atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	fronts := d.fronts()
	for i := range fronts {
		all.Go(func() {
			for n := 0; !over.Load(); n++ {
				if status, _ := d.order(fronts[i], fmt.Sprintf("newcomer-%d-%d", i, n)); status == http.StatusAccepted {
					accepted.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return func() int64 {
		over.Store(true)
		all.Wait()
		return accepted.Load()
	}
}

func (d *disaster) fronts() (urls []string) {
	for _, p := range d.running {
		if program, _, _ := strings.Cut(p.Name, "-"); program == "api" {
			urls = append(urls, p.URL())
		}
	}
	return urls
}

// order places an order, and repeats none: the buyer's name is the key. The status is 0 where there was no answer.
func (d *disaster) order(front, user string) (status int, orderID string) {
	url := front + "/v1/sales/" + disasterSale + "/orders"
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, http.NoBody)
	if err != nil {
		return 0, ""
	}
	request.Header.Set("X-User-Id", user)
	request.Header.Set("Idempotency-Key", user)
	response, err := d.client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	var receipt struct {
		OrderID string `json:"order_id"`
	}
	if json.NewDecoder(response.Body).Decode(&receipt) != nil {
		return 0, ""
	}
	return response.StatusCode, receipt.OrderID
}

// settled waits until each order has its row, none of them rejected, and the audit is exact and clean.
func (d *disaster) settled(told map[string]bool) {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), disasterLimit)
	defer cancel()
	pool, err := pgxpool.New(ctx, d.servers.Postgres.URL())
	if err != nil {
		d.Fatal(err)
	}
	defer pool.Close()
	ids := make([]string, 0, len(told))
	for id := range told {
		ids = append(ids, id)
	}
	testkit.Eventually(d.T, disasterLimit, "every order with a receipt has its row", func() bool {
		var rows int
		err := pool.QueryRow(ctx, `select count(*) from orders where sale_id = $1 and id = any($2::uuid[])
			and status <> 'rejected'`, disasterSale, ids).Scan(&rows)
		return err == nil && rows == len(told)
	})
	store, err := db.Open(ctx, d.servers.Postgres.URL(), db.Options{})
	if err != nil {
		d.Fatal(err)
	}
	defer store.Close()
	sale, err := store.Sale(ctx, disasterSale)
	if err != nil {
		d.Fatal(err)
	}
	report, err := audit.NewAuditor(d.rdb, pipeline.DefaultKeys, store).Audit(ctx, sale)
	if err != nil || !report.Exact || !report.Clean() || report.Orders != int64(len(told)) {
		d.Errorf("the audit: %+v, %v, want %d orders, exact and clean", report, err, len(told))
	}
}
