package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/internal/process"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

// answerLimit bounds every call of a test: far above the deadline of any answer, so that exceeding it is a failure on a
// busy machine too.
const answerLimit = 2 * time.Minute

// patience is how long an order may take where the test does not say: as long as a request's deadline allows, since a
// busy machine must not turn an accept into a refusal.
const patience = 4 * time.Second

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
	sales     *sales.Catalogue
	publisher *sales.Publisher
	registry  *prometheus.Registry
	logs      *testkit.Log
	pushes    *prometheus.Registry // the hub's
	endPush   func()               // ends the hub, as a server that stops does
	payments  *payments.Service
	metrics   *prometheus.Registry // of the payments
	ring      *entry.Ring          // of the entry tickets
	entry     *entry.Service
}

type rigOptions struct {
	redisURL    string // empty: the shared server
	databaseURL string // empty: a fresh database on the shared server
	admission   admission.Options
	contract    *contract // empty: one of its own
	push        notification.HubConfig
	deps        func(*httpapi.Deps)
	entry       entry.Options
	connections *limits.Connections // nil: no limits
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r := &rig{
		t: t, contract: o.contract, keys: pipeline.Keys{Prefix: testkit.Prefix(t)}, database: o.databaseURL,
		registry: prometheus.NewRegistry(), logs: &testkit.Log{},
	}
	if r.contract == nil {
		r.contract = loadContract(t)
	}
	log := r.log()
	r.connect(o)
	r.sales = sales.NewCatalogue(r.store, log)
	must(t, recovery.EnsureVerified(t.Context(), r.rdb, r.keys, r.store, 4, log))
	r.publisher = sales.NewPublisher(r.rdb, r.keys, r.store, 4, log)
	if o.admission.RequestTimeout == 0 {
		o.admission.RequestTimeout = patience
	}
	admission := admission.New(r.rdb, r.keys, o.admission, nil, log)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		if err := admission.Close(ctx); err != nil {
			t.Errorf("close the admission: %v", err)
		}
	})
	r.verify(admission)
	parts := r.parts()
	r.payments = r.newPayments()
	r.newEntry(o.entry)
	deps := httpapi.Deps{
		Payments: r.payments, WebhookSecrets: secretsOf(t, webhookSecret),

		Admission: admission, Sales: r.sales, Stock: parts.Stock(),
		Orders: parts.Lookup(), Cancel: parts.Canceller(), Waitlist: parts.Waitlist(),
		Push: r.push(o.push), Auth: devAuth{}, Entry: r.entry, Log: log, Metrics: r.registry,
		Ready: httpapi.NewReadiness(log,
			httpapi.Check{Name: "redis", Run: func(ctx context.Context) error { return r.rdb.Ping(ctx).Err() }},
			httpapi.Check{Name: "postgres", Run: r.store.Ping}),
		Version: httpapi.Version{Version: "1.2.3", Commit: "abc", Go: "go1.26"},
	}
	if o.deps != nil {
		o.deps(&deps)
	}
	deps.Streams = &httpapi.Streams{}
	r.t.Cleanup(func() {
		r.endPush() // ends every stream
		deps.Streams.Wait()
	})
	r.serve(httpapi.New(deps), o.connections)
	return r
}

// push runs a hub until the test ends, as an api does.
func (r *rig) push(c notification.HubConfig) *notification.Hub {
	r.pushes = prometheus.NewRegistry()
	c.Redis, c.Keys, c.Partitions, c.Orders, c.Registerer, c.Log = r.rdb, r.keys, 4, r.store, r.pushes, r.log()
	hub := notification.NewHub(c)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(ctx)
	}()
	r.endPush = func() {
		stop()
		<-done
	}
	r.t.Cleanup(r.endPush)
	return hub
}

// verify runs a verifier until the test ends, as an api does.
func (r *rig) verify(admission *admission.Controller) {
	parts := r.parts()
	parts.Log = slog.New(slog.DiscardHandler)
	config := parts.VerifierConfig()
	config.Accepts = parts.Journaled(admission)
	verifier := recovery.NewVerifier(config)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		verifier.Run(ctx)
	}()
	r.t.Cleanup(func() {
		stop()
		<-done
	})
}

// parts are those of the pipeline over the rig's stores.
func (r *rig) parts() *process.Parts {
	parts := process.NewParts(r.rdb, r.store, 4, r.log())
	parts.Keys = r.keys
	return parts
}

// worker is a store that may do no more than a worker's. The rig's own may do no more than an api's.
func (r *rig) worker() *db.Store {
	r.t.Helper()
	store, err := db.Open(r.t.Context(), testkit.AsWorker(r.database), db.Options{})
	must(r.t, err)
	r.t.Cleanup(store.Close)
	return store
}

func (r *rig) connect(o rigOptions) {
	r.rdb = testkit.Redis(r.t)
	if o.redisURL != "" {
		r.rdb = testkit.Client(r.t, o.redisURL)
	}
	if r.database == "" {
		r.database = testkit.Database(r.t)
	}
	store, err := db.Open(r.t.Context(), testkit.AsAPI(r.database), db.Options{})
	must(r.t, err)
	r.t.Cleanup(store.Close)
	r.store = store
}

func (r *rig) serve(h http.Handler, connections *limits.Connections) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	if connections != nil {
		connections.Refused = httpapi.CountRefused(r.registry)
		l = connections.Listener(l)
	}
	server := httpapi.Server("", h)
	served := make(chan error, 1)
	go func() { served <- server.Serve(httpapi.Listener(l)) }()
	r.address = l.Addr().String()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a test follows by itself
	r.client = &http.Client{Transport: transport, Timeout: answerLimit, CheckRedirect: stay}
	r.t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			r.t.Errorf("shut the server down: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			r.t.Errorf("serve: %v", err)
		}
	})
}

// devAuth is auth.Dev with a buyer at whom the program breaks, to see what a fault looks like from outside.
type devAuth struct{}

const breakingUser = "breaks-the-program"

func (devAuth) Authenticate(r *http.Request) (string, error) {
	if r.Header.Get("X-User-Id") == breakingUser {
		panic("a cause that no client may see")
	}
	return auth.Dev{}.Authenticate(r)
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
		must(r.t, err)
		generation, err := r.store.Generation(r.t.Context())
		must(r.t, err)
		var events []pipeline.Event
		for _, entry := range entries {
			event, err := pipeline.DecodeEvent(p, entry.ID, entry.Values)
			if err != nil {
				r.t.Fatalf("event %s: %v", entry.ID, err)
			}
			events = append(events, event)
		}
		if _, err := r.store.PersistOrders(r.t.Context(), generation, events); err != nil {
			r.t.Fatalf("persist: %v", err)
		}
	}
}

// exec changes Postgres behind everybody's back.
func (r *rig) exec(query string, args ...any) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.database)
	must(r.t, err)
	defer func() { _ = conn.Close(r.t.Context()) }()
	if _, err := conn.Exec(r.t.Context(), query, args...); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
}

func (r *rig) log() *slog.Logger {
	return slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
