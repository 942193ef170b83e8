package db_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fixture is a fresh database with the store under test and a plain pool of connections.
type fixture struct {
	*testing.T
	url   string
	store *db.Store
	raw   *pgxpool.Pool
}

// patient options are for tests that are not about time limits: a busy machine must not fail them.
var patient = db.Options{StatementTimeout: time.Minute, LockTimeout: 30 * time.Second}

func setup(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return open(t, testkit.Database(t), patient)
}

func open(t *testing.T, url string, opts db.Options) *fixture {
	t.Helper()
	store, err := db.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	raw, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("raw pool: %v", err)
	}
	t.Cleanup(raw.Close)
	t.Cleanup(store.Close)
	return &fixture{T: t, url: url, store: store, raw: raw}
}

// benchStores are a store on a fresh database, and a plain pool of connections.
func benchStores(b *testing.B) (*db.Store, *pgxpool.Pool) {
	url := testkit.Database(b)
	store, err := db.Open(b.Context(), url, db.Options{})
	if err != nil {
		b.Fatal(err)
	}
	raw, err := pgxpool.New(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(raw.Close)
	b.Cleanup(store.Close)
	return store, raw
}

// ctx bounds everything that one test asks of Postgres.
func (f *fixture) ctx() context.Context {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	f.Cleanup(cancel)
	return ctx
}

func (f *fixture) exec(query string, args ...any) {
	f.Helper()
	if _, err := f.raw.Exec(f.ctx(), query, args...); err != nil {
		f.Fatalf("%s: %v", query, err)
	}
}

// one returns the single value of a query.
func one[T any](f *fixture, query string, args ...any) T {
	f.Helper()
	var value T
	if err := f.raw.QueryRow(f.ctx(), query, args...).Scan(&value); err != nil {
		f.Fatalf("%s: %v", query, err)
	}
	return value
}

// state is everything in the tables that the pipeline writes, down to which transaction wrote each row (xmin): two
// equal states mean that not even an update without effect happened in between.
func (f *fixture) state() string {
	f.Helper()
	all := ""
	for _, table := range []string{
		"sales", "orders", "releases", "watermarks", "dead_letters", "audit_log",
		"installation",
	} {
		rows := one[string](f, fmt.Sprintf(
			`select coalesce(string_agg(r::text, E'\n' order by r::text), '') from (select xmin, t.* from %s t) r`, table))
		all += table + "\n" + rows + "\n"
	}
	return all
}

func newSale(id string, total int64) *pipeline.Sale {
	return &pipeline.Sale{
		ID: id, Title: "A thing", Total: total, MaxQuantity: 10,
		OpensAt:       time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		ClosesAt:      time.Date(2026, 11, 1, 13, 0, 0, 0, time.UTC),
		PaymentWindow: 15 * time.Minute,
		Partitions:    []pipeline.Partition{3},
	}
}

func (f *fixture) sale(id string, total int64) *pipeline.Sale {
	f.Helper()
	return f.create(newSale(id, total))
}

// freeSale is a sale whose orders need no payment.
func (f *fixture) freeSale(id string, total int64) *pipeline.Sale {
	f.Helper()
	sale := newSale(id, total)
	sale.PaymentWindow = 0
	return f.create(sale)
}

func (f *fixture) create(sale *pipeline.Sale) *pipeline.Sale {
	f.Helper()
	if err := f.store.CreateSale(f.ctx(), sale); err != nil {
		f.Fatalf("create sale: %v", err)
	}
	return sale
}

// events makes n accepts of different buyers, one unit each, as one partition would count them.
func events(saleID string, n int) []pipeline.Event {
	list := make([]pipeline.Event, n)
	for i := range list {
		list[i] = event(saleID, fmt.Sprintf("%s-buyer-%d", saleID, i), 1, int64(i+1))
	}
	return list
}

// lastNumber makes order numbers that are unique in the process.
var lastNumber atomic.Int64

func event(saleID, userID string, quantity int, sequence int64) pipeline.Event {
	return pipeline.Event{
		Partition: 3, EntryID: fmt.Sprintf("1700000000000-%d", sequence), SaleID: saleID, Sequence: sequence,
		OrderID: uuid.Must(uuid.NewV7()).String(), Number: 1<<40 + lastNumber.Add(1), UserID: userID, Quantity: quantity,
		AcceptedAt: time.UnixMilli(1793534400000 + sequence).UTC(),
	}
}

// cancel cancels an order for its buyer, and returns whether that changed it.
func (f *fixture) cancel(e pipeline.Event) bool {
	f.Helper()
	_, changed, err := f.store.CancelOrder(f.ctx(), e.SaleID, e.OrderID, e.UserID)
	if err != nil {
		f.Fatalf("cancel order %s: %v", e.OrderID, err)
	}
	return changed
}

func (f *fixture) persist(batch ...pipeline.Event) []pipeline.PersistOutcome {
	f.Helper()
	outcomes, err := f.store.PersistOrders(f.ctx(), 1, batch)
	if err != nil {
		f.Fatalf("persist %d events: %v", len(batch), err)
	}
	return outcomes
}

// books is what must agree about a sale: its counter, the sum over its live orders, and the number of rows.
type books struct{ sold, live, rows int64 }

func (f *fixture) books(saleID string) books {
	f.Helper()
	var b books
	err := f.raw.QueryRow(f.ctx(), `
		select s.sold, coalesce(sum(o.quantity) filter (where o.closed_at is null), 0), count(o.id)
		from sales s left join orders o on o.sale_id = s.id where s.id = $1 group by s.id`, saleID).
		Scan(&b.sold, &b.live, &b.rows)
	if err != nil {
		f.Fatalf("books: %v", err)
	}
	return b
}

func (f *fixture) watermark(saleID string, p pipeline.Partition) int64 {
	f.Helper()
	return one[int64](f, `select coalesce(max(seq), 0) from watermarks where sale_id = $1 and partition = $2`,
		saleID, int(p))
}

func wantKind(t testing.TB, err error, want pipeline.Kind) {
	t.Helper()
	if got := pipeline.KindOf(err); got != want {
		t.Fatalf("error %v: got kind %q, want %q", err, got, want)
	}
}
