package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/webhook"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patient bounds every wait, so that a busy machine fails no test.
const patient = 2 * time.Minute

// rig is a fresh database with a store and a service that allows receivers on this machine.
type rig struct {
	*testing.T
	url       string
	store     *db.Store
	raw       *pgxpool.Pool
	endpoints *webhook.EndpointService
	log       *slog.Logger
}

var allowPrivate = webhook.Policy{AllowPrivate: true}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{T: t, url: testkit.Database(t), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	r.store = r.open(r.url)
	raw, err := pgxpool.New(t.Context(), r.url)
	must(t, err)
	t.Cleanup(raw.Close)
	r.raw = raw
	r.endpoints = webhook.NewEndpointService(r.store.EndpointRegistry(), allowPrivate, nil)
	return r
}

func (r *rig) open(url string) *db.Store {
	r.Helper()
	store, err := db.Open(r.Context(), url, db.Options{StatementTimeout: time.Minute, LockTimeout: 30 * time.Second})
	must(r, err)
	r.Cleanup(store.Close)
	return store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) exec(query string, args ...any) {
	r.Helper()
	_, err := r.raw.Exec(r.Context(), query, args...)
	must(r, err)
}

func (r *rig) endpoint(id int64) webhook.Endpoint {
	r.Helper()
	e, err := r.store.Endpoint(r.Context(), id)
	must(r, err)
	return e
}

// sale creates a sale whose orders are confirmed at once.
func (r *rig) sale(id string, total int64) {
	r.Helper()
	must(r, r.store.CreateSale(r.Context(), &pipeline.Sale{
		ID: id, Title: "Lamp", Total: total, MaxQuantity: 10, OpensAt: time.Unix(1, 0), ClosesAt: time.Unix(1e9, 0),
		Partitions: []pipeline.Partition{0},
	}))
}

// orders persists n orders, each in a transaction of its own, and returns their ids in the order of commits.
func (r *rig) orders(sale string, n int) []string {
	r.Helper()
	var ids []string
	for range n {
		id, number := uuid.Must(uuid.NewV7()).String(), lastNumber()
		_, err := r.store.PersistOrders(r.Context(), 1, []pipeline.Event{{
			SaleID: sale, OrderID: id, Number: number, UserID: fmt.Sprint("buyer-", number), Quantity: 1, Sequence: number,
			AcceptedAt: time.Now(),
		}})
		must(r, err)
		ids = append(ids, id)
	}
	return ids
}

var numbers struct {
	sync.Mutex
	last int64
}

func lastNumber() int64 {
	numbers.Lock()
	defer numbers.Unlock()
	numbers.last++
	return numbers.last
}

// worker is a store that may do no more than a worker's.
func (r *rig) worker() *db.Store {
	r.Helper()
	return r.open(testkit.AsWorker(r.url))
}

// deliverer runs a deliverer, over a worker's store in place of the rig's, until the test ends or stop is called.
func (r *rig) deliverer(store webhook.Store, timeout time.Duration) (stop func()) {
	r.Helper()
	if store == webhook.Store(r.store) {
		store = r.worker()
	}
	d := webhook.NewDeliverer(store, allowPrivate, nil, webhook.NewMetrics(nil), r.log)
	d.Hasten(10*time.Millisecond, timeout)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	r.Cleanup(stop)
	return stop
}

// cloudEvent is what a receiver reads.
type cloudEvent struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time"`
	Position    string         `json:"position"`
	ContentType string         `json:"datacontenttype"`
	Data        map[string]any `json:"data"`
}

// receiver is a real HTTP server that checks every signature and records first arrivals.
type receiver struct {
	t      *testing.T
	server *httptest.Server
	answer func(n int, w http.ResponseWriter, r *http.Request) // nil: 204

	mu       sync.Mutex // protects the rest
	secret   string
	requests int
	seen     map[string]bool
	first    []cloudEvent // each event once, at its first arrival
	repeats  []cloudEvent // in the order of their arrival
	again    int          // repeated arrivals
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, seen: map[string]bool{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// register makes it an endpoint, for some types of events or for all.
func (r *receiver) register(rig *rig, types ...string) webhook.Endpoint {
	r.t.Helper()
	e, err := rig.endpoints.Add(rig.Context(), "ann", r.server.URL+"/hook?token=t", types)
	must(r.t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = e.Secret
	return e
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // cut off by the sender
	}
	r.mu.Lock()
	secret := r.secret
	r.requests++
	n := r.requests
	r.mu.Unlock()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err == nil {
		err = hook.Verify(body, request.Header)
	}
	if err != nil {
		r.t.Errorf("the signature does not hold: %v", err)
	}
	var e cloudEvent
	if err := json.Unmarshal(body, &e); err != nil || e.ID != request.Header.Get("webhook-id") {
		r.t.Errorf("the body %s does not go with the id %s: %v", body, request.Header.Get("webhook-id"), err)
	}
	got := request.Header.Get("Content-Type")
	if got != "application/cloudevents+json; charset=utf-8" || request.Method != http.MethodPost {
		r.t.Errorf("%s with Content-Type %q", request.Method, got)
	}
	answer := r.answer
	if answer == nil {
		r.take(e)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	taking := &takingWriter{ResponseWriter: w, take: func() { r.take(e) }}
	answer(n, taking, request)
}

// takingWriter records the event as arrived when the status says so; a handler may also record it and then fail to
// answer.
type takingWriter struct {
	http.ResponseWriter
	take func()
}

func (t *takingWriter) WriteHeader(status int) {
	if status/100 == 2 {
		t.take()
	}
	t.ResponseWriter.WriteHeader(status)
}

func (r *receiver) take(e cloudEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[e.ID] {
		r.again++
		r.repeats = append(r.repeats, e)
		return
	}
	r.seen[e.ID] = true
	r.first = append(r.first, e)
}

func (r *receiver) subjects() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, len(r.first))
	for i, e := range r.first {
		list[i] = e.Subject
	}
	return list
}

func (r *receiver) counts() (requests, first, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, len(r.first), r.again
}

// wait waits until n events have arrived.
func (r *receiver) wait(n int) {
	r.t.Helper()
	testkit.Eventually(r.t, patient, fmt.Sprintf("%d events to arrive", n), func() bool {
		_, first, _ := r.counts()
		return first >= n
	})
}
