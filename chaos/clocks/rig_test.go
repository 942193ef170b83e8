package clocks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/db"
	"sluice/internal/buyers"
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
	// big never sells out; small is sold out at once, so that its buyers wait for units that are given back.
	big, small = "big", "small"
	price      = 500
	currency   = "EUR"
	payWindow  = 3 * time.Second // orders expire all the time, so that units are given back all the time
	orderEvery = 100 * time.Millisecond
	lookEvery  = 200 * time.Millisecond
	startLimit = 5 * time.Minute // the programs are built
	endLimit   = 2 * time.Minute
	payEvery   = 4 // of the big sale's orders
	maxTrouble = 50
)

// What must go on while a clock is wrong, and how it is seen.
var signals = []string{"accept", "row", "expiry", "unit given back", "payment", "hand-over", "strict accept"}

const countsQuery = `
select
	(select count(*) from orders where sale_id = 'big'),
	(select count(*) from orders where status = 'expired'),
	(select count(*) from releases where applied_at is not null),
	(select count(*) from orders where status = 'paid'),
	(select count(*) from orders where sale_id = 'small')`

// rig is two apis and two workers under load; the first of each, and both stores, have clocks that can be moved.
type rig struct {
	*testing.T
	rdb     *redis.Client
	pool    *pgxpool.Pool
	store   *db.Store
	sales   []*pipeline.Sale
	apis    []*programs.Process
	workers []*programs.Process
	client  *http.Client
	secret  string
	clocks  map[string]clock

	mu      sync.Mutex             // protects the rest
	came    map[string][]time.Time // of each signal, when it came
	unpaid  map[string]time.Time   // orders that nobody pays, and when they were told, until they have expired
	trouble []string               // panics
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	dir := t.TempDir()
	servers, err := localservers.StartWithClocks(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, servers.Close()) })
	must(t, db.Migrate(ctx, servers.Postgres.URL()))
	r := &rig{
		T: t, rdb: testkit.Client(t, servers.Redis.URL()), client: &http.Client{Timeout: 4 * time.Second},
		secret: buyers.NewSecret(), came: map[string][]time.Time{}, unpaid: map[string]time.Time{},
		clocks: map[string]clock{},
	}
	r.clocks["Redis"] = clock{servers.Redis.SetClock, r.redisTime}
	r.clocks["Postgres"] = clock{servers.Postgres.SetClock, r.postgresTime}
	r.pool, err = pgxpool.New(ctx, servers.Postgres.URL())
	must(t, err)
	t.Cleanup(r.pool.Close)
	r.store, err = db.Open(ctx, servers.Postgres.URL(), db.Options{})
	must(t, err)
	t.Cleanup(r.store.Close)
	r.createSales(ctx)
	for _, kind := range []string{"api", "worker"} {
		path, err := programs.BuildWithClock(ctx, "sluice/cmd/"+kind, dir)
		must(t, err)
		for _, n := range []string{"-1", "-2"} {
			p := r.launch(servers, path, kind+n, dir)
			must(t, p.Await(ctx))
			t.Cleanup(func() { _ = p.Stop(context.Background()) })
			if kind == "api" {
				r.apis = append(r.apis, p)
			} else {
				r.workers = append(r.workers, p)
			}
		}
	}
	return r
}

func (r *rig) launch(servers *localservers.Servers, path, name, dir string) *programs.Process {
	r.Helper()
	moved, err := programs.NewClock(dir, name)
	must(r.T, err)
	p, err := programs.Launch(servers, programs.Program{
		Name: name, Path: path, OnLine: r.heard, Environ: append(programs.Environ(), moved.Environ(),
			"DURABILITY_STRICT="+strconv.FormatBool(name == "api-1"),
			"REDIS_URL="+servers.Redis.URL(), "DATABASE_URL="+servers.Postgres.URL(), "DURABILITY=fsync", "AUTH_MODE=dev",
			"LOG_FORMAT=json", "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "PAYMENT_WEBHOOK_SECRET="+r.secret),
	})
	must(r.T, err)
	r.clocks[name] = clock{moved.Set, func(now time.Time) time.Duration { return r.processTime(p, now) }}
	return p
}

// confirms has Redis flush every write, or not: then a strict api accepts nothing.
func (r *rig) confirms(ctx context.Context, flush bool) {
	r.Helper()
	policy := map[bool]string{true: "always", false: "everysec"}[flush]
	must(r.T, r.rdb.ConfigSet(ctx, "appendfsync", policy).Err())
	if !flush { // new connections look at once
		must(r.T, r.rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	}
}

// clock can be moved, and says how far it is ahead of an instant.
type clock struct {
	set   func(time.Duration) error
	reads func(now time.Time) time.Duration
}

func (r *rig) redisTime(now time.Time) time.Duration {
	r.Helper()
	at, err := r.rdb.Time(r.Context()).Result()
	must(r.T, err)
	return at.Sub(now)
}

func (r *rig) postgresTime(now time.Time) time.Duration {
	r.Helper()
	var at time.Time
	must(r.T, r.pool.QueryRow(r.Context(), "select clock_timestamp()").Scan(&at))
	return at.Sub(now)
}

// processTime is by the Date of a process' answer.
func (r *rig) processTime(p *programs.Process, now time.Time) time.Duration {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, p.AdminURL()+"/healthz", http.NoBody)
	must(r.T, err)
	response, err := r.client.Do(request)
	must(r.T, err)
	must(r.T, response.Body.Close())
	at, err := http.ParseTime(response.Header.Get("Date"))
	must(r.T, err)
	return at.Sub(now)
}

func (r *rig) heard(line programs.Line) {
	text := line.Text()
	if line.Level != "" && !strings.Contains(text, "panic") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.trouble) < maxTrouble {
		r.trouble = append(r.trouble, line.Process+": "+text)
	}
}

func (r *rig) createSales(ctx context.Context) {
	r.Helper()
	log := slog.New(slog.DiscardHandler)
	must(r.T, recovery.EnsureVerified(ctx, r.rdb, pipeline.DefaultKeys, r.store, partitions, log))
	publisher := sales.NewPublisher(r.rdb, pipeline.DefaultKeys, r.store, partitions, log)
	for id, total := range map[string]int64{big: 1_000_000, small: 20} {
		now := time.Now()
		must(r.T, publisher.Create(ctx, &pipeline.Sale{
			ID: id, Title: id, Total: total, MaxQuantity: 1, UnitPrice: price, Currency: currency,
			OpensAt: now.Add(-24 * time.Hour), ClosesAt: now.Add(24 * time.Hour), PaymentWindow: payWindow, Waitlist: 100_000,
		}))
		sale, err := r.store.Sale(ctx, id)
		must(r.T, err)
		r.sales = append(r.sales, sale)
	}
}

// run orders, pays and looks until the context ends.
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
	every(orderEvery, func(n int) {
		running.Go(func() { r.buy(ctx, n) })
		running.Go(func() { r.queue(n) })
	})
	var counts [5]int64
	every(lookEvery, func(int) { r.look(ctx, &counts) })
	every(lookEvery, func(int) { r.lookForExpired(ctx) })
	running.Wait()
}

// buy orders one unit of the big sale, and pays some of what it gets.
func (r *rig) buy(ctx context.Context, n int) {
	user, asked := fmt.Sprint("buyer-", n), time.Now()
	status, body := r.post(r.apis[n%len(r.apis)], "/v1/sales/"+big+"/orders", user, http.Header{}, nil)
	var receipt struct {
		OrderID string `json:"order_id"`
	}
	if status != http.StatusAccepted || json.Unmarshal(body, &receipt) != nil {
		return
	}
	told := time.Now()
	r.mu.Lock()
	r.came["accept"] = append(r.came["accept"], told)
	if n%len(r.apis) == 0 {
		r.came["strict accept"] = append(r.came["strict accept"], told)
	}
	if n%payEvery != 0 {
		r.unpaid[receipt.OrderID] = asked // the time to pay begins before the receipt arrives
	}
	r.mu.Unlock()
	for n%payEvery == 0 && ctx.Err() == nil && !r.pay(n, user, receipt.OrderID) {
		time.Sleep(lookEvery) // a provider repeats what was not taken, to another api where there is one
		n += len(r.apis)*payEvery + 1
		n -= n % payEvery
	}
}

// pay reports the payment of an order once, and says whether there was an answer.
func (r *rig) pay(n int, user, order string) bool {
	body, err := json.Marshal(map[string]any{"type": "payment.succeeded", "data": map[string]any{
		"payment_id": "pay-" + order, "sale_id": big, "order_id": order, "user_id": user, "amount": price,
		"currency": currency,
	}})
	must(r.T, err)
	signer, err := standardwebhooks.NewWebhook(r.secret)
	must(r.T, err)
	now := time.Now()
	signature, err := signer.Sign("msg-"+order, now, body)
	must(r.T, err)
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set(standardwebhooks.HeaderWebhookID, "msg-"+order)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	status, _ := r.post(r.apis[n/payEvery%len(r.apis)], "/v1/webhooks/payments", "", header, body)
	return status/100 == 2
}

// queue waits for a unit of the small sale.
func (r *rig) queue(n int) {
	user := fmt.Sprint("waiting-", n)
	api := r.apis[n%len(r.apis)]
	if status, _ := r.post(api, "/v1/sales/"+small+"/orders", user, http.Header{}, nil); status == http.StatusConflict {
		header := http.Header{}
		header.Set("Content-Type", "application/json")
		r.post(api, "/v1/sales/"+small+"/waitlist", user, header, []byte(`{"quantity":1}`))
	}
}

// post returns 0 where there was no answer.
func (r *rig) post(
	to *programs.Process, path, user string, header http.Header, body []byte,
) (status int, answer []byte) {
	request, err := http.NewRequest(http.MethodPost, to.URL()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	request.Header = header
	if user != "" {
		request.Header.Set("X-User-Id", user)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	answer, _ = io.ReadAll(response.Body)
	return response.StatusCode, answer
}

// look notes what has moved on since the look before.
func (r *rig) look(ctx context.Context, before *[5]int64) {
	var now [5]int64
	if r.pool.QueryRow(ctx, countsQuery).Scan(&now[0], &now[1], &now[2], &now[3], &now[4]) != nil {
		return // the next look finds out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, signal := range signals[1:6] {
		if now[i] > before[i] {
			r.came[signal] = append(r.came[signal], time.Now())
		}
	}
	*before = now
}

// lookForExpired fails the test when an order has expired before its buyer had the time to pay.
func (r *rig) lookForExpired(ctx context.Context) {
	r.mu.Lock()
	ids := make([]string, 0, len(r.unpaid))
	for id := range r.unpaid {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	var expired []string
	const query = "select coalesce(array_agg(id::text), '{}') from orders " +
		"where sale_id = $1 and id = any($2::uuid[]) and status = 'expired'"
	if r.pool.QueryRow(ctx, query, big, ids).Scan(&expired) != nil {
		return // the next look finds out
	}
	seen := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range expired {
		if had := seen.Sub(r.unpaid[id]); had < payWindow {
			r.Errorf("order %s expired %s after it was asked for, want no less than %s", id, had, payWindow)
		}
		delete(r.unpaid, id)
	}
}

// alive fails the test when a process has died or panicked.
func (r *rig) alive() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range append(r.apis, r.workers...) {
		select {
		case <-p.Exited():
			r.Fatalf("%s has died: %q", p.Name, r.trouble)
		default:
		}
	}
	if len(r.trouble) > 0 {
		r.Fatalf("a program panicked: %q", r.trouble)
	}
}

// settled waits until nobody has time to pay any more, and audits.
func (r *rig) settled() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	auditor := audit.NewAuditor(r.rdb, pipeline.DefaultKeys, r.store)
	for _, sale := range r.sales {
		var report *audit.Report
		var err error
		for until := time.Now().Add(endLimit / 2); time.Now().Before(until); time.Sleep(time.Second) {
			report, err = auditor.Audit(ctx, sale)
			if err == nil && report.Exact && report.Clean() && report.InFlight == 0 && report.Unapplied == 0 {
				break
			}
		}
		if err != nil || !report.Exact || !report.Clean() || report.Rejected+report.Letters > 0 {
			r.Errorf("the audit of %s: %+v, %v, want it exact and clean, and nothing rejected", sale.ID, report, err)
			continue
		}
		r.Logf("%s: %d accepts, %d rows, %d rebuilds", sale.ID, report.Accepted, report.Orders, report.Rebuilds)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if accepted := int64(len(r.came["accept"])); accepted > 0 {
		var rows int64
		must(r.T, r.pool.QueryRow(ctx, "select count(*) from orders where sale_id = $1", big).Scan(&rows))
		if rows < accepted {
			r.Errorf("%d orders of %s were told, and %d have rows", accepted, big, rows)
		}
	}
}
