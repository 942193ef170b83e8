package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/httpapi"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// answerLimit bounds every call of a test: above the deadline of any answer, so that exceeding it is a failure.
const answerLimit = 10 * time.Second

// rig is a whole public side on a port of its own: the real handlers over the real pipeline, Redis and Postgres.
type rig struct {
	t         testing.TB
	address   string
	client    *http.Client
	contract  *contract
	rdb       *redis.Client
	keys      pipeline.Keys
	store     *db.Store
	database  string
	sales     *pipeline.Catalogue
	publisher *pipeline.Publisher
	registry  *prometheus.Registry
	logs      *lockedBuffer
}

type rigOptions struct {
	redisURL    string // empty: the shared server
	databaseURL string // empty: a fresh database on the shared server
	admission   pipeline.AdmissionOptions
	contract    *contract // empty: one of its own
	deps        func(*httpapi.Deps)
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r := &rig{
		t: t, contract: o.contract, keys: pipeline.Keys{Prefix: testkit.Prefix(t)}, database: o.databaseURL,
		registry: prometheus.NewRegistry(), logs: &lockedBuffer{},
	}
	if r.contract == nil {
		r.contract = loadContract(t)
	}
	log := slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.connect(o)
	r.sales = pipeline.NewCatalogue(r.store, log)
	r.publisher = pipeline.NewPublisher(r.rdb, r.keys, r.store, 4, log)
	admission := pipeline.NewAdmission(r.rdb, r.keys, o.admission, pipeline.NewMetrics(nil), log)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		if err := admission.Close(ctx); err != nil {
			t.Errorf("close the admission: %v", err)
		}
	})
	deps := httpapi.Deps{
		Admission: admission, Sales: r.sales, Stock: pipeline.NewStockReader(r.rdb, r.keys),
		Orders: pipeline.NewLookup(r.rdb, r.keys, r.store), Auth: devAuth{}, Log: log, Metrics: r.registry,
		Ready: []httpapi.Check{
			{Name: "redis", Run: func(ctx context.Context) error { return r.rdb.Ping(ctx).Err() }},
			{Name: "postgres", Run: r.store.Ping},
		},
		Version: httpapi.Version{Version: "1.2.3", Commit: "abc", Go: "go1.26"},
	}
	if o.deps != nil {
		o.deps(&deps)
	}
	r.serve(httpapi.New(deps))
	return r
}

func (r *rig) connect(o rigOptions) {
	r.rdb = testkit.Redis(r.t)
	if o.redisURL != "" {
		r.rdb = testkit.Client(r.t, o.redisURL)
	}
	if r.database == "" {
		r.database = testkit.Database(r.t)
	}
	store, err := db.Open(r.t.Context(), r.database, db.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(store.Close)
	r.store = store
}

func (r *rig) serve(h http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	server := httpapi.Server("", h)
	served := make(chan error, 1)
	go func() { served <- server.Serve(httpapi.Listener(l)) }()
	r.address = l.Addr().String()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	r.client = &http.Client{Transport: transport, Timeout: answerLimit}
	r.t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			r.t.Errorf("shut the server down: %v", err)
		}
		<-served
	})
}

// devAuth is DevAuth with a buyer at whom the program breaks, to see what a fault looks like from outside.
type devAuth struct{}

const breakingUser = "breaks-the-program"

func (devAuth) Authenticate(r *http.Request) (string, error) {
	if r.Header.Get("X-User-Id") == breakingUser {
		panic("a cause that no client may see")
	}
	return httpapi.DevAuth{}.Authenticate(r)
}

// newSale is an open sale; change it before it is created.
func newSale(id string, stock int64) *pipeline.Sale {
	now := time.Now()
	return &pipeline.Sale{
		ID: id, Title: "Lamp No. 7", Total: stock, MaxQuantity: 3, PaymentWindow: 15 * time.Minute,
		OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour),
	}
}

// create stores a sale, loads it into Redis and lets the catalogue know.
func (r *rig) create(s *pipeline.Sale) *pipeline.Sale {
	r.t.Helper()
	if err := r.publisher.Create(r.t.Context(), s); err != nil {
		r.t.Fatalf("create sale %s: %v", s.ID, err)
	}
	r.reload()
	return s
}

// defineOnly stores a sale without loading it into Redis.
func (r *rig) defineOnly(s *pipeline.Sale) {
	r.t.Helper()
	s.State, s.Partitions = pipeline.SaleActive, pipeline.PlaceSale(s.ID, 4)
	if err := r.store.CreateSale(r.t.Context(), s); err != nil {
		r.t.Fatalf("define sale %s: %v", s.ID, err)
	}
	r.reload()
}

func (r *rig) setState(id string, state pipeline.SaleState) {
	r.t.Helper()
	if _, err := r.publisher.Change(r.t.Context(), id, "test", pipeline.SaleChange{State: &state}); err != nil {
		r.t.Fatalf("change sale %s: %v", id, err)
	}
	r.reload()
}

func (r *rig) reload() {
	r.t.Helper()
	if err := r.sales.Load(r.t.Context()); err != nil {
		r.t.Fatalf("load the sales: %v", err)
	}
}

// persist writes every order of the stream to Postgres, as a worker does.
func (r *rig) persist(s *pipeline.Sale) {
	r.t.Helper()
	for _, p := range s.Partitions {
		entries, err := r.rdb.XRange(r.t.Context(), r.keys.Orders(p), "-", "+").Result()
		if err != nil {
			r.t.Fatal(err)
		}
		var events []pipeline.Event
		for _, entry := range entries {
			event, err := pipeline.DecodeEvent(p, entry.ID, entry.Values)
			if err != nil {
				r.t.Fatalf("event %s: %v", entry.ID, err)
			}
			events = append(events, event)
		}
		if _, err := r.store.PersistOrders(r.t.Context(), events); err != nil {
			r.t.Fatalf("persist: %v", err)
		}
	}
}

// call is one request of a test.
type call struct {
	method, path string
	body         string
	header       http.Header
}

func get(path, user string) call {
	return call{method: http.MethodGet, path: path}.with("X-User-Id", user)
}

// order asks for units; a body of "" means no body at all.
func order(sale, user, body string) call {
	c := call{method: http.MethodPost, path: "/v1/sales/" + sale + "/orders", body: body}.with("X-User-Id", user)
	if body != "" {
		c = c.with("Content-Type", "application/json")
	}
	return c
}

// with returns the call with a header; an empty value leaves the header out.
func (c call) with(name, value string) call {
	h := http.Header{}
	if c.header != nil {
		h = c.header.Clone()
	}
	if value == "" {
		h.Del(name)
	} else {
		h.Set(name, value)
	}
	c.header = h
	return c
}

// reply is the whole answer to a call.
type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// do sends a call and holds the answer to the contract.
func (r *rig) do(c call) reply {
	r.t.Helper()
	got, err := r.try(c)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	return got
}

// try is do for other goroutines than the test's own.
func (r *rig) try(c call) (reply, error) {
	request, err := http.NewRequest(c.method, "http://"+r.address+c.path, strings.NewReader(c.body))
	if err != nil {
		return reply{}, err
	}
	if c.body == "" {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	if c.header != nil {
		request.Header = c.header.Clone()
	}
	began := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end below
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	got := reply{response.StatusCode, response.Header, body, time.Since(began)}
	if err := r.contract.hold(request, got); err != nil {
		return got, fmt.Errorf("the answer breaks the contract: %w\nstatus %d\n%s", err, got.status, got.body)
	}
	return got, nil
}

// expect sends a call, demands a status, and a code where the answer is a problem.
func (r *rig) expect(c call, status int, code string) reply {
	r.t.Helper()
	got := r.do(c)
	if got.status != status || got.code() != code {
		r.t.Fatalf("%s %s: got %d %q, want %d %q\n%s", c.method, c.path, got.status, got.code(), status, code, got.body)
	}
	return got
}

// problem is what tests look at in a problem document.
type problem struct {
	Type, Code, Title, Detail, Instance string
	Status                              int
	RequestID                           string `json:"request_id"`
	OrderID                             string `json:"order_id"`
	OpensAt                             string `json:"opens_at"`
	MaxQuantity                         int    `json:"max_quantity"`
	Errors                              []struct{ Field, Detail string }
}

func (a reply) problem() problem {
	var p problem
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
		_ = json.Unmarshal(a.body, &p) // a document that is none has no code, which every test sees
	}
	return p
}

func (a reply) code() string { return a.problem().Code }

type receipt struct {
	OrderID     string `json:"order_id"`
	OrderNumber string `json:"order_number"`
	SaleID      string `json:"sale_id"`
	Quantity    int
	Status      string
	Durability  string
	AcceptedAt  time.Time `json:"accepted_at"`
}

func decode[T any](t testing.TB, a reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// written is all that Redis holds under the rig's prefix and all that Postgres holds, to compare before and after.
func (r *rig) written() map[string]string {
	r.t.Helper()
	ctx := r.t.Context()
	state := map[string]string{}
	keys := r.rdb.Scan(ctx, 0, r.keys.Prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		dump, err := r.rdb.Dump(ctx, keys.Val()).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		state["redis "+keys.Val()] = dump
	}
	if err := keys.Err(); err != nil {
		r.t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, r.database)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // the database goes away with the test
	rows, err := conn.Query(ctx, `select table_name, query_to_xml(format('select * from %I order by 1', table_name), true, true, '')::text
		from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`)
	if err != nil {
		r.t.Fatal(err)
	}
	var table, content string
	if _, err := pgx.ForEachRow(rows, []any{&table, &content}, func() error {
		state["postgres "+table] = content
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return state
}

// raw sends bytes that no HTTP client would and reads what comes back.
func (r *rig) raw(text string) reply {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.address, answerLimit)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost with it
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return readRaw(r.t, conn)
}

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu  chanMutex
	buf bytes.Buffer
}
