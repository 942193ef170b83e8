package refusals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
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
	partitions = 16
	saleID     = "drop-1"
	payWindow  = 2 * time.Second       // orders expire all the time, so that units are given back all the time
	orderEvery = 50 * time.Millisecond // the load is light
	lookEvery  = 100 * time.Millisecond
	startLimit = 2 * time.Minute
	endLimit   = 2 * time.Minute
)

// rig is an api and a worker under load, each with a user of its own at Redis.
type rig struct {
	*testing.T
	rdb   *redis.Client // as the default user, who may do everything
	pool  *pgxpool.Pool
	store *db.Store
	sale  *pipeline.Sale

	api, worker *programs.Process
	client      *http.Client

	mu       sync.Mutex           // protects the rest
	accepts  []accept             // in the order of their receipts
	rowless  map[string]time.Time // accepts without a row, and when they were told
	rows     map[string]time.Time // accepts with a row, and when it was seen
	oldest   time.Duration        // the longest that an accept was without a row since the last call of waited
	unready  map[string]time.Time // when each process last said that it is not ready
	ready    map[string]time.Time // when each process last said that it is
	trouble  []string             // panics
	answered map[int]int
}

type accept struct {
	id         string
	asked, got time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	servers, err := localservers.Start(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, servers.Close()) })
	must(t, db.Migrate(ctx, servers.Postgres.URL()))
	r := &rig{
		T: t, rdb: testkit.Client(t, servers.Redis.URL()), client: &http.Client{Timeout: 4 * time.Second},
		rowless: map[string]time.Time{}, rows: map[string]time.Time{}, unready: map[string]time.Time{},
		ready: map[string]time.Time{}, answered: map[int]int{},
	}
	r.pool, err = pgxpool.New(ctx, servers.Postgres.URL())
	must(t, err)
	t.Cleanup(r.pool.Close)
	r.store, err = db.Open(ctx, servers.Postgres.URL(), db.Options{})
	must(t, err)
	t.Cleanup(r.store.Close)
	for _, user := range users {
		r.acl(user, append([]any{"reset"}, everything...)...)
	}
	r.api, r.worker = r.launch(servers, "api"), r.launch(servers, "worker")
	for _, p := range []*programs.Process{r.api, r.worker} {
		must(t, p.Await(ctx))
		t.Cleanup(func() { _ = p.Stop(context.Background()) })
	}
	r.createSale(ctx)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) launch(servers *localservers.Servers, name string) *programs.Process {
	r.Helper()
	u, err := url.Parse(servers.Redis.URL())
	must(r.T, err)
	u.User = url.UserPassword(name, "secret")
	p, err := programs.Launch(servers, programs.Program{
		Name: name, Args: []string{name}, OnLine: r.heard, Environ: append(programs.Environ(),
			"REDIS_URL="+u.String(), "DATABASE_URL="+servers.Postgres.URL(), "DURABILITY=fsync", "AUTH_MODE=dev",
			"LOG_FORMAT=json", "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0"),
	})
	must(r.T, err)
	return p
}

func (r *rig) heard(line programs.Line) {
	text := line.Text()
	if line.Level != "" && !strings.Contains(text, "panic") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.trouble) < 50 {
		r.trouble = append(r.trouble, line.Process+": "+text)
	}
}

func (r *rig) createSale(ctx context.Context) {
	r.Helper()
	log := slog.New(slog.DiscardHandler)
	must(r.T, recovery.EnsureVerified(ctx, r.rdb, pipeline.DefaultKeys, r.store, partitions, log))
	now := time.Now()
	sale := &pipeline.Sale{
		ID: saleID, Title: "Drop", Total: 1_000_000, MaxQuantity: 1, OpensAt: now.Add(-time.Hour),
		ClosesAt: now.Add(time.Hour), PaymentWindow: payWindow,
	}
	must(r.T, sales.NewPublisher(r.rdb, pipeline.DefaultKeys, r.store, partitions, log).Create(ctx, sale))
	var err error
	r.sale, err = r.store.Sale(ctx, saleID)
	must(r.T, err)
}

// run orders and looks until the context ends.
func (r *rig) run(ctx context.Context) {
	var running sync.WaitGroup
	every := func(interval time.Duration, do func(n int)) {
		running.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					do(n)
				}
			}
		})
	}
	every(orderEvery, func(n int) { running.Go(func() { r.order(n) }) })
	every(lookEvery, func(int) { r.lookForRows(ctx) })
	every(lookEvery, func(int) { r.ask("api", r.api.URL()) })
	every(lookEvery, func(int) { r.ask("worker", r.worker.AdminURL()) })
	running.Wait()
}

func (r *rig) order(n int) {
	asked := time.Now()
	request, err := http.NewRequest(http.MethodPost, r.api.URL()+"/v1/sales/"+saleID+"/orders", http.NoBody)
	if err != nil {
		return
	}
	request.Header.Set("X-User-Id", fmt.Sprint("buyer-", n))
	status, body := r.do(request)
	var receipt struct {
		OrderID string `json:"order_id"`
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered[status]++
	if status == http.StatusAccepted && json.Unmarshal(body, &receipt) == nil {
		now := time.Now()
		r.accepts = append(r.accepts, accept{receipt.OrderID, asked, now})
		r.rowless[receipt.OrderID] = now
	}
}

// do returns 0 where there was no answer.
func (r *rig) do(request *http.Request) (status int, body []byte) {
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	body, _ = io.ReadAll(response.Body)
	return response.StatusCode, body
}

func (r *rig) ask(name, at string) {
	asked := time.Now()
	request, err := http.NewRequest(http.MethodGet, at+"/readyz", http.NoBody)
	if err != nil {
		return
	}
	status, _ := r.do(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == http.StatusOK {
		r.ready[name] = asked
	} else {
		r.unready[name] = time.Now()
	}
}

func (r *rig) lookForRows(ctx context.Context) {
	r.mu.Lock()
	ids := make([]string, 0, len(r.rowless))
	for id := range r.rowless {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	var found []string
	const query = "select coalesce(array_agg(id::text), '{}') from orders where sale_id = $1 and id = any($2::uuid[])"
	err := r.pool.QueryRow(ctx, query, saleID, ids).Scan(&found)
	if err != nil {
		return // the next look finds out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, id := range found {
		r.rows[id] = now
	}
	for id, told := range r.rowless {
		r.oldest = max(r.oldest, now.Sub(told))
		if !r.rows[id].IsZero() {
			delete(r.rowless, id)
		}
	}
}

// alive fails the test when a process has died or panicked.
func (r *rig) alive() {
	r.Helper()
	for _, p := range []*programs.Process{r.api, r.worker} {
		select {
		case <-p.Exited():
			r.Fatalf("the %s has died: %q", p.Name, r.trouble)
		default:
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.trouble) > 0 {
		r.Fatalf("a program panicked: %q", r.trouble)
	}
}

// settled waits until every accept is a row and everything that ended was given back, and audits.
func (r *rig) settled() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	testkit.Eventually(r.T, endLimit, "every accept has its row", func() bool {
		r.lookForRows(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.rowless) == 0
	})
	auditor := audit.NewAuditor(r.rdb, pipeline.DefaultKeys, r.store)
	var report *audit.Report
	var err error
	for until := time.Now().Add(endLimit / 2); time.Now().Before(until); time.Sleep(time.Second) {
		report, err = auditor.Audit(ctx, r.sale)
		if err == nil && report.Exact && report.Clean() && report.InFlight == 0 && report.Unapplied == 0 {
			break
		}
	}
	if err != nil || !report.Exact || !report.Clean() || report.Rejected+report.Letters+report.Rebuilds > 0 {
		r.Errorf("the audit: %+v, %v, want it exact and clean, and nothing rejected or rebuilt", report, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Logf("%d accepts, %d rows, answers %v; %s", len(r.accepts), report.Orders, r.answered, report.Findings)
}
