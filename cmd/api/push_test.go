package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
	"sluice/pipeline/worker"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	// pushClients is how many clients TestManyClientsAreTold has, unless PUSH_CLIENTS says otherwise.
	pushClients = 500
	// poolSize is how many connections to Redis the api takes at most for its calls, and the worker of this process too.
	poolSize = 32
	// pushLimit bounds each wait.
	pushLimit = 2 * time.Minute
)

var quiet = slog.New(slog.DiscardHandler)

// TestManyClientsAreTold: one api process, the program that ships, with many clients that each follow an order. All of
// them are told when workers store the orders, and again when the orders expire; Redis sees as many connections as
// without them.
//
// With PUSH_CLIENTS=10000 it is the measurement of docs/benchmarks.md: how long after the commit they were told, and
// what they cost in memory. On a machine that others use too such times are noise, so nothing here fails by one.
func TestManyClientsAreTold(t *testing.T) {
	clients := pushClients
	if text := os.Getenv("PUSH_CLIENTS"); text != "" {
		var err error
		if clients, err = strconv.Atoi(text); err != nil || clients < 1 || clients > 20_000 {
			t.Fatalf("PUSH_CLIENTS=%s: use 1 to 20000", text)
		}
	}
	s := newSite(t, clients)
	orders := s.accept(t, clients)
	without, resident := s.connections(t), s.memory(t)
	crowd := newCrowd(t, s, orders)
	t.Logf("%d clients: resident memory %d MB, with them %d MB (at most %d MB); connections to Redis %d, with them %d",
		clients, resident.now, s.memory(t).now, s.memory(t).peak, without, s.connections(t))

	crowd.change(t, "stored by a worker", 1, s.work)
	if got := s.subscribers(t); got != 1 {
		t.Errorf("subscriptions to Redis: got %d, want 1 for all", got)
	}
	if with := s.connections(t); with > without+2*poolSize {
		t.Errorf("connections to Redis: %d, and %d before anybody followed an order", with, without)
	}
	crowd.change(t, "expired, one batch after the other", 2, s.expire)
	t.Logf("afterwards: resident memory %d MB (at most %d MB)", s.memory(t).now, s.memory(t).peak)
	s.stop(t, crowd)
}

// site is a whole installation: private servers, and the api as a process of its own.
type site struct {
	servers *localservers.Servers
	rdb     *redis.Client
	store   *db.Store
	sale    *pipeline.Sale
	api     *localservers.RunningProgram
	address string
	log     string // the file
}

func newSite(t *testing.T, stock int, settings ...string) *site {
	t.Helper()
	ctx := t.Context()
	servers, err := localservers.Start(ctx)
	must(t, err)
	t.Cleanup(func() { _ = servers.Close() })
	must(t, db.Migrate(ctx, servers.Postgres.URL()))
	store, err := db.Open(ctx, servers.Postgres.URL(), db.Options{})
	must(t, err)
	t.Cleanup(store.Close)
	s := &site{
		servers: servers, store: store, rdb: testkit.Client(t, servers.Redis.URL()),
		sale: &pipeline.Sale{
			ID: "drop-1", Title: "Drop", Total: int64(stock), MaxQuantity: 1, PaymentWindow: time.Hour,
			OpensAt: time.Now().Add(-time.Hour), ClosesAt: time.Now().Add(time.Hour),
		},
	}
	_, err = store.EnsurePartitions(ctx, 16)
	must(t, err)
	must(t, recovery.EnsureVerified(ctx, s.rdb, pipeline.DefaultKeys, store, 16, quiet))
	must(t, sales.NewPublisher(s.rdb, pipeline.DefaultKeys, store, 16, quiet).Create(ctx, s.sale))
	s.serve(t, settings...)
	return s
}

var listening = regexp.MustCompile(`"api listening" url=http://([0-9.:]+)`)

// serve builds the api and starts it.
func (s *site) serve(t *testing.T, settings ...string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "api")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the api: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "api.log"))
	must(t, err)
	s.log = log.Name()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the api's log ends with:\n%s", s.logged()[max(0, len(s.logged())-4000):])
		}
		_ = log.Close()
	})
	s.api, err = s.servers.Run(localservers.Program{
		Name: "api", Path: binary, Stdout: log, Stderr: log,
		Env: append(append(os.Environ(), settings...),
			"REDIS_URL="+s.servers.Redis.URL(), "DATABASE_URL="+s.servers.Postgres.URL(),
			"ACCEPT_JOURNAL="+filepath.Join(t.TempDir(), "journal"),
			"HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "AUTH_MODE=dev", "LOG_FORMAT=text"),
	})
	must(t, err)
	testkit.Eventually(t, pushLimit, "the api to serve", func() bool { return listening.MatchString(s.logged()) })
	s.address = listening.FindStringSubmatch(s.logged())[1]
}

func (s *site) logged() string {
	text, _ := os.ReadFile(s.log) // a test that needs the text misses it
	return string(text)
}

// accept has so many buyers order, and returns their orders' ids.
func (s *site) accept(t *testing.T, buyers int) []string {
	t.Helper()
	admission := admission.New(s.rdb, pipeline.DefaultKeys,
		admission.Options{QueueLimit: buyers, RequestTimeout: time.Minute},
		nil, quiet)
	orders := make([]string, buyers)
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			decision, err := admission.Admit(t.Context(), s.sale, pipeline.OrderRequest{UserID: buyer(i), Quantity: 1})
			if err != nil || decision.Result != "accepted" {
				t.Errorf("%s: got %s, %v, want accepted", buyer(i), decision.Result, err)
			}
			orders[i] = decision.Receipt.OrderID
		})
	}
	all.Wait()
	must(t, admission.Close(t.Context()))
	return orders
}

func buyer(i int) string { return "buyer-" + strconv.Itoa(i) }

// connections counts all connections to Redis, ours included.
func (s *site) connections(t *testing.T) int {
	t.Helper()
	list, err := s.rdb.ClientList(t.Context()).Result()
	must(t, err)
	return strings.Count(list, "\n")
}

// subscribers counts the connections that listen to channels.
func (s *site) subscribers(t *testing.T) int {
	t.Helper()
	list, err := s.rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	must(t, err)
	return strings.Count(list, "\n")
}

// memory is what the api has of the machine's memory, in MB.
type memory struct{ now, peak int }

// memory is 0 where the system has no /proc.
func (s *site) memory(t *testing.T) memory {
	t.Helper()
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.api.PID()))
	value := func(name string) int {
		_, after, _ := strings.Cut(string(text), name+":")
		fields := strings.Fields(after)
		if len(fields) == 0 {
			return 0
		}
		kb, err := strconv.Atoi(fields[0])
		must(t, err)
		return kb / 1024
	}
	return memory{value("VmRSS"), value("VmHWM")}
}

// noted is a store that notes when each order's transaction returned.
type noted struct {
	*db.Store
	note func(orderID string, at time.Time)
}

func (n noted) PersistMarked(
	ctx context.Context, g pipeline.Generation, events []pipeline.Event,
) ([]pipeline.PersistOutcome, map[pipeline.SalePartition]int64, error) {
	outcomes, marks, err := n.Store.PersistMarked(ctx, g, events)
	now := time.Now()
	for i := range outcomes {
		n.note(events[i].OrderID, now)
	}
	return outcomes, marks, err
}

func (n noted) ExpireOrders(ctx context.Context, limit int) ([]pipeline.Order, error) {
	expired, err := n.Store.ExpireOrders(ctx, limit)
	now := time.Now()
	for i := range expired {
		n.note(expired[i].ID, now)
	}
	return expired, err
}

// work runs a worker until the context ends.
func (s *site) work(ctx context.Context, t *testing.T, note func(string, time.Time)) {
	reader := testkit.Client(t, s.servers.Redis.URL())
	worker, err := worker.New(worker.Config{
		Redis: s.rdb, Reader: reader, Keys: pipeline.DefaultKeys, Store: noted{s.store, note},
		Options: worker.Options{Partitions: 16}, Log: quiet,
	})
	if err != nil {
		t.Errorf("worker: %v", err)
		return
	}
	worker.Run(ctx)
}

// expire lets all orders expire.
func (s *site) expire(ctx context.Context, t *testing.T, note func(string, time.Time)) {
	if err := overdue(ctx, s.servers.Postgres.URL()); err != nil {
		t.Errorf("make the orders overdue: %v", err)
		return
	}
	notifier := notification.NewNotifier(s.rdb, pipeline.DefaultKeys, quiet)
	if err := lifecycle.NewExpirer(noted{s.store, note}, notifier, nil, quiet).Expire(ctx); err != nil {
		t.Errorf("expire: %v", err)
	}
}

// overdue makes every order one that was to be paid by now.
func overdue(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `update orders set pay_by = now() - interval '1 s'`)
	return errors.Join(err, conn.Close(ctx))
}

// stop tells the api to stop, and expects that it ends every stream and then itself.
func (s *site) stop(t *testing.T, c *crowd) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), pushLimit)
	defer cancel()
	must(t, s.api.Stop(ctx))
	testkit.Eventually(t, pushLimit, "every stream to end", func() bool { return c.open.Load() == 0 })
	if strings.Contains(s.logged(), "cut off") {
		t.Error("the api cut its streams off")
	}
	t.Logf("stopped within %d ms", time.Since(began).Milliseconds())
}

// crowd is clients that each follow an order over a connection of their own. They read only what they must, so that
// they leave the machine to the api.
type crowd struct {
	orders []string
	open   atomic.Int64
	seen   [3]atomic.Int64 // clients that saw this version
	told   [3][]time.Time  // when, by client
	index  map[string]int  // of the client, by order
	commit [3][]time.Time  // by client
	mu     sync.Mutex      // protects commit and conns
	conns  []net.Conn
}

func newCrowd(t *testing.T, s *site, orders []string) *crowd {
	t.Helper()
	c := &crowd{orders: orders, index: map[string]int{}}
	for v := range c.told {
		c.told[v], c.commit[v] = make([]time.Time, len(orders)), make([]time.Time, len(orders))
	}
	for i, order := range orders {
		c.index[order] = i
	}
	const atOnce = 50
	var all sync.WaitGroup
	next := make(chan int)
	t.Cleanup(func() {
		c.leave()
		all.Wait()
	})
	var begin sync.WaitGroup
	for range atOnce {
		begin.Go(func() {
			for i := range next {
				lines := c.connect(t, s, i)
				all.Go(func() { c.follow(t, i, lines) })
			}
		})
	}
	for i := range orders {
		next <- i
	}
	close(next)
	begin.Wait()
	if got := c.seen[0].Load(); got != int64(len(orders)) {
		t.Fatalf("%d of %d clients saw their queued order", got, len(orders))
	}
	return c
}

// connect opens a client's stream and reads its first event. A server that is too busy is asked again, as clients do.
func (c *crowd) connect(t *testing.T, s *site, i int) *bufio.Reader {
	for until := time.Now().Add(pushLimit); time.Now().Before(until) &&
		t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", s.address, pushLimit)
		if err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // a connection that can't, can't be read either
		_, _ = fmt.Fprintf(conn, "GET /v1/sales/%s/orders/%s/events HTTP/1.1\r\nHost: %s\r\nX-User-Id: %s\r\n\r\n",
			s.sale.ID, c.orders[i], s.address, buyer(i))
		lines := bufio.NewReaderSize(conn, 512)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil || strings.HasPrefix(string(line), "HTTP/1.1 503") {
				break
			}
			if strings.HasPrefix(string(line), "HTTP/1.1 4") {
				t.Errorf("client %d was refused: %s", i, line)
				_ = conn.Close()
				return bufio.NewReader(strings.NewReader(""))
			}
			if string(line) == "id: 0\n" {
				_ = conn.SetReadDeadline(time.Time{})
				c.seen[0].Add(1)
				c.open.Add(1)
				c.mu.Lock()
				c.conns = append(c.conns, conn)
				c.mu.Unlock()
				return lines
			}
		}
		_ = conn.Close()
	}
	t.Errorf("client %d got no stream", i)
	return bufio.NewReader(strings.NewReader(""))
}

// leave ends every client's connection.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// follow notes when each version arrives, until the stream ends.
func (c *crowd) follow(t *testing.T, i int, lines *bufio.Reader) {
	defer c.open.Add(-1)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) < 5 || string(line[:4]) != "id: " {
			continue
		}
		now := time.Now()
		v, err := strconv.Atoi(strings.TrimSpace(string(line[4:])))
		if err != nil || v < 1 || v >= len(c.told) || !c.told[v][i].IsZero() {
			t.Errorf("client %d was told %q, a second time or wrongly", i, line)
			return
		}
		c.told[v][i] = now
		c.seen[v].Add(1)
	}
}

// change lets something change all orders and tells how long after its commit each client was told.
func (c *crowd) change(
	t *testing.T, what string, version int, change func(context.Context, *testing.T, func(string, time.Time)),
) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		change(ctx, t, func(order string, at time.Time) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if i := c.index[order]; c.commit[version][i].IsZero() {
				c.commit[version][i] = at
			}
		})
	})
	testkit.Eventually(t, pushLimit, "every client to be told",
		func() bool { return c.seen[version].Load() == int64(len(c.orders)) })
	stop()
	running.Wait()
	delays := make([]time.Duration, len(c.orders))
	for i := range c.orders {
		// A client may be told before the transaction has returned to the program that ran it: the sweep reads too.
		delays[i] = max(0, c.told[version][i].Sub(c.commit[version][i]))
	}
	slices.Sort(delays)
	first, last := slices.MinFunc(c.commit[version], time.Time.Compare), slices.MaxFunc(c.commit[version],
		time.Time.Compare)
	t.Logf("%s: %d commits' orders within %d ms; told after the commit: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms", what, len(delays),
		last.Sub(first).Milliseconds(), rank(delays, 0.5), rank(delays, 0.9), rank(delays, 0.99), rank(delays, 1))
}

// rank is the nearest-rank quantile in milliseconds.
func rank(sorted []time.Duration, part float64) float64 {
	at := max(1, int(math.Ceil(part*float64(len(sorted)))))
	return float64(sorted[at-1].Microseconds()) / 1000
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
