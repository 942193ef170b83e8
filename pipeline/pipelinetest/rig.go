package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/installation"
	"sluice/pipeline/metrics"
	"sluice/pipeline/recovery"
	"sluice/pipeline/sales"
)

const (
	// CallLimit bounds each wait of a test: many times what anything takes, on a machine that is busy with something else.
	CallLimit = time.Minute
	// testLimit bounds all that one test asks of the stores.
	testLimit = 5 * time.Minute
)

// Options say how a rig differs from the usual one: the process' shared servers, and one open sale of 100 units on one
// partition.
type Options struct {
	RedisURL    string // of a server or a cluster of the test's own, or of a faultnet.Proxy before one
	DatabaseURL string // likewise; a private one must be migrated
	Partitions  int    // of the installation; default 4
	Sale        pipeline.Sale
	NoSale      bool
	Admission   admission.Options
	Log         slog.Handler // default: nothing is logged
}

// Rig is the pipeline without workers, over real stores, with the raw connections beside it.
type Rig struct {
	*testing.T
	Options   Options
	Redis     redis.UniversalClient
	Keys      pipeline.Keys
	Store     *db.Store
	SQL       *pgxpool.Pool
	Registry  *prometheus.Registry
	Metrics   *metrics.Metrics
	Logger    *slog.Logger
	Fence     *installation.Fence // of the verifiers, the workers and the admissions; fresh while Verifies runs
	Publisher *sales.Publisher
	Admission *admission.Controller
	Auditor   *audit.Auditor
	Sale      *pipeline.Sale // loaded into Redis
	Bound     context.Context
}

// New returns a rig whose stores are closed when the test ends.
func New(t *testing.T, o Options) *Rig {
	t.Helper()
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.DatabaseURL == "" {
		o.DatabaseURL = testkit.Database(t)
	}
	if o.Log == nil {
		o.Log = slog.DiscardHandler
	}
	r := &Rig{T: t, Options: o, Registry: prometheus.NewRegistry(), Logger: slog.New(o.Log)}
	bound, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel) // the last one to run: others need the stores to tidy up
	r.Bound = bound
	r.Connect()
	r.Metrics, r.Fence = metrics.New(r.Registry), installation.NewFence(r.Store, 0)
	if err := recovery.EnsureVerified(r.Ctx(), r.Redis, r.Keys, r.Store, o.Partitions, r.Logger); err != nil {
		t.Fatalf("verify: %v", err)
	}
	r.Publisher = sales.NewPublisher(r.Redis, r.Keys, r.Store, o.Partitions, r.Logger)
	r.Auditor = audit.NewAuditor(r.Redis, r.Keys, r.Store)
	r.Admission = r.NewAdmission(r.Redis, o.Admission)
	if !o.NoSale {
		r.Sale = r.CreateSale(o.Sale)
	}
	return r
}

// Connect opens the rig's stores.
func (r *Rig) Connect() {
	r.Helper()
	if r.Options.RedisURL == "" {
		r.Redis, r.Keys = testkit.Redis(r.T), pipeline.Keys{Prefix: testkit.Prefix(r.T)}
	} else {
		r.Redis, r.Keys = r.dial(), pipeline.Keys{Prefix: "rig"}
	}
	var err error
	if r.Store, err = db.Open(r.Ctx(), r.Options.DatabaseURL, db.Options{}); err != nil {
		r.Fatalf("open the store: %v", err)
	}
	r.Cleanup(r.Store.Close)
	if r.SQL, err = pgxpool.New(r.Ctx(), r.Options.DatabaseURL); err != nil {
		r.Fatalf("raw pool: %v", err)
	}
	r.Cleanup(r.SQL.Close)
}

// dial makes one more client of the rig's Redis, in the form of its URL.
func (r *Rig) dial() redis.UniversalClient {
	r.Helper()
	switch url := r.Options.RedisURL; {
	case url == "":
		return testkit.Redis(r.T)
	case strings.HasPrefix(url, "redis+cluster:"):
		return testkit.ClusterClient(r.T, url)
	default:
		return testkit.Client(r.T, url)
	}
}

// Ctx bounds whatever a test asks of the stores, and outlives its cleanups.
func (r *Rig) Ctx() context.Context { return r.Bound }

// NewAdmission is one more API process, as far as admission goes. It is closed when the test ends. Unless the test says
// how long a request may take, it may take long: a busy machine must not turn an accept into a refusal.
func (r *Rig) NewAdmission(rdb redis.UniversalClient, opts admission.Options) *admission.Controller {
	r.Helper()
	if opts.RequestTimeout == 0 {
		opts.RequestTimeout = CallLimit
	}
	if opts.Fence == nil {
		opts.Fence = r.Fence
	}
	a := admission.New(rdb, r.Keys, opts, r.Metrics.Admission, r.Logger)
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			r.Errorf("close the admission: %v", err)
		}
	})
	return a
}

// Try asks for units without expecting any outcome.
func (r *Rig) Try(req pipeline.OrderRequest) (admission.Decision, error) {
	return r.Admission.Admit(r.Ctx(), r.Sale, req)
}

// Admit lets a buyer order and expects an accept.
func (r *Rig) Admit(userID string, quantity int) admission.Receipt {
	r.Helper()
	decision, err := r.Try(pipeline.OrderRequest{UserID: userID, Quantity: quantity})
	if err != nil || decision.Result != admission.Accepted {
		r.Fatalf("order of %d by %s: got %q, %v, want accepted", quantity, userID, decision.Result, err)
	}
	return decision.Receipt
}

// AdmitMany lets n buyers order one unit each, all at once, and returns their receipts. Their ids begin with the
// prefix.
func (r *Rig) AdmitMany(prefix string, n int) []admission.Receipt {
	r.Helper()
	receipts, errs := make([]admission.Receipt, n), make([]error, n)
	Together(n, func(i int) {
		decision, err := r.Try(pipeline.OrderRequest{UserID: fmt.Sprintf("%s-%d", prefix, i), Quantity: 1})
		if err == nil && decision.Result != admission.Accepted {
			err = errors.New(string(decision.Result))
		}
		receipts[i], errs[i] = decision.Receipt, err
	})
	if err := errors.Join(errs...); err != nil {
		r.Fatalf("not all of %d orders were accepted: %v", n, err)
	}
	return receipts
}

// Events are those in the sale's streams, oldest first within each partition. Other sales' events are left out, and an
// entry that can't be decoded fails the test.
func (r *Rig) Events(sale *pipeline.Sale) []pipeline.Event {
	r.Helper()
	var events []pipeline.Event
	for _, p := range sale.Partitions {
		for _, m := range r.Entries(p) {
			event, err := pipeline.DecodeEvent(p, m.ID, m.Values)
			if err != nil {
				r.Fatalf("entry %s: %v", m.ID, err)
			}
			if event.SaleID == sale.ID {
				events = append(events, event)
			}
		}
	}
	return events
}

// Entries are the raw entries of a partition's stream.
func (r *Rig) Entries(p pipeline.Partition) []redis.XMessage {
	r.Helper()
	entries, err := r.Redis.XRange(r.Ctx(), r.Keys.Orders(p), "-", "+").Result()
	if err != nil {
		r.Fatalf("read the stream of %s: %v", p, err)
	}
	return entries
}

// Persist takes events out of the stream into Postgres, as a worker would that nothing disturbs, and expects a new row
// for each.
func (r *Rig) Persist(events ...pipeline.Event) {
	r.Helper()
	for batch := range slices.Chunk(events, pipeline.MaxPersistBatch) {
		outcomes, err := r.Store.PersistOrders(r.Ctx(), r.Generation(), batch)
		if err != nil {
			r.Fatalf("persist %d events: %v", len(batch), err)
		}
		for i, outcome := range outcomes {
			if outcome != pipeline.PersistInserted {
				r.Fatalf("persist the order of %s: got %s", batch[i].UserID, outcome)
			}
		}
	}
	r.Forget(events...)
}

// Generation is the present one.
func (r *Rig) Generation() pipeline.Generation {
	r.Helper()
	g, err := r.Store.Generation(r.Ctx())
	if err != nil {
		r.Fatalf("generation: %v", err)
	}
	return g
}

// Forget deletes entries from the stream, no matter what became of them.
func (r *Rig) Forget(events ...pipeline.Event) {
	r.Helper()
	ids := map[pipeline.Partition][]string{}
	for _, e := range events {
		ids[e.Partition] = append(ids[e.Partition], e.EntryID)
	}
	for p, of := range ids {
		if err := r.Redis.XDel(r.Ctx(), r.Keys.Orders(p), of...).Err(); err != nil {
			r.Fatalf("delete entries of %s: %v", p, err)
		}
	}
}

// Rows counts the orders of a sale in Postgres, in any status.
func (r *Rig) Rows(saleID string) int {
	r.Helper()
	var n int
	if err := r.SQL.QueryRow(r.Ctx(), `select count(*) from orders where sale_id = $1`, saleID).Scan(&n); err != nil {
		r.Fatalf("count orders: %v", err)
	}
	return n
}

// Exec changes Postgres without any program's knowledge and expects a number of rows to be affected.
func (r *Rig) Exec(rows int64, query string, args ...any) {
	r.Helper()
	tag, err := r.SQL.Exec(r.Ctx(), query, args...)
	if err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	if tag.RowsAffected() != rows {
		r.Fatalf("%s: %d rows affected, want %d", query, tag.RowsAffected(), rows)
	}
}

// SaleHash is what Redis has of a sale on a partition.
func (r *Rig) SaleHash(p pipeline.Partition, saleID string) map[string]string {
	r.Helper()
	return r.Hash(r.Keys.Sale(p, saleID))
}

// Hash reads a hash.
func (r *Rig) Hash(key string) map[string]string {
	r.Helper()
	fields, err := r.Redis.HGetAll(r.Ctx(), key).Result()
	if err != nil {
		r.Fatalf("read %s: %v", key, err)
	}
	return fields
}

// Stock is the units left in Redis, over all of a sale's partitions.
func (r *Rig) Stock(sale *pipeline.Sale) int64 {
	r.Helper()
	var sum int64
	for _, p := range sale.Partitions {
		n, err := strconv.ParseInt(r.SaleHash(p, sale.ID)["stock"], 10, 64)
		if err != nil {
			r.Fatalf("stock of %s on %s: %v", sale.ID, p, err)
		}
		sum += n
	}
	return sum
}

// Slots are the buyers of a sale, by user id, over all of its partitions.
func (r *Rig) Slots(sale *pipeline.Sale) map[string]lua.Slot {
	r.Helper()
	slots := map[string]lua.Slot{}
	for _, p := range sale.Partitions {
		for user, value := range r.Hash(r.Keys.Buyers(p, sale.ID)) {
			slot, err := lua.ParseSlot(value)
			if err != nil {
				r.Fatalf("slot of %s: %v", user, err)
			}
			slots[user] = slot
		}
	}
	return slots
}

// Dump is everything that Redis has of a sale and in its streams. Two equal dumps mean that nothing happened between.
func (r *Rig) Dump(sale *pipeline.Sale) string {
	r.Helper()
	var out strings.Builder
	for _, p := range sale.Partitions {
		for _, key := range []string{r.Keys.Sale(p, sale.ID), r.Keys.Buyers(p, sale.ID)} {
			fields := r.Hash(key)
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				fmt.Fprintf(&out, "%s %s=%s\n", key, name, fields[name])
			}
		}
		for _, m := range r.Entries(p) {
			fmt.Fprintf(&out, "%s %s %v\n", r.Keys.Orders(p), m.ID, m.Values)
		}
	}
	return out.String()
}

// WantKind expects an error of this kind.
func WantKind(t testing.TB, err error, want pipeline.Kind) {
	t.Helper()
	if got := pipeline.KindOf(err); got != want || err == nil {
		t.Fatalf("error %v: got kind %q, want %q", err, got, want)
	}
}
