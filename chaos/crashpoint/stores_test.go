package crashpoint

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/lua"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/sales"
)

const (
	saleID = "drop"
	total  = 100
	only   = pipeline.Partition(0)
)

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// exec runs a statement that must change so many rows.
func (r *run) exec(rows int64, statement string, args ...any) {
	r.Helper()
	tag, err := r.pool.Exec(r.Context(), statement, args...)
	if err != nil || tag.RowsAffected() != rows {
		r.Fatalf("%s: got %d rows, %v; want %d", statement, tag.RowsAffected(), err, rows)
	}
}

func aSale(id string) *pipeline.Sale {
	return &pipeline.Sale{
		ID: id, Title: id, Total: total, MaxQuantity: 10,
		OpensAt: time.Now().Add(-time.Hour), ClosesAt: time.Now().Add(time.Hour),
		State: pipeline.SaleActive, Partitions: pipeline.PlaceSale(id, partitions),
	}
}

// openSale makes a sale and puts it into Redis.
func (r *run) openSale() *pipeline.Sale {
	r.Helper()
	sale := aSale(saleID)
	r.must(sales.NewPublisher(r.rdb, keys, r.store, partitions, silent).Create(r.Context(), sale))
	return r.stored(saleID)
}

func (r *run) stored(id string) *pipeline.Sale {
	r.Helper()
	sale, err := r.store.Sale(r.Context(), id)
	r.must(err)
	return sale
}

// accept has buyers order a unit each, one after the other, as an api without a crash does.
func (r *run) accept(sale *pipeline.Sale, users ...string) {
	r.Helper()
	a := admission.New(r.rdb, keys, admission.Options{RequestTimeout: patience},
		nil, silent)
	for _, user := range users {
		d, err := a.Admit(r.Context(), sale, pipeline.OrderRequest{UserID: user, Quantity: 1})
		if err != nil || d.Result != admission.Accepted {
			r.Fatalf("order of %s: got %q, %v, want accepted", user, d.Result, err)
		}
	}
	r.must(a.Close(r.Context()))
}

// events are those in the stream.
func (r *run) events() []pipeline.Event {
	r.Helper()
	entries, err := r.rdb.XRange(r.Context(), keys.Orders(only), "-", "+").Result()
	r.must(err)
	var events []pipeline.Event
	for _, m := range entries {
		e, err := pipeline.DecodeEvent(only, m.ID, m.Values)
		r.must(err)
		events = append(events, e)
	}
	return events
}

// persist does with the events of the stream what a worker without a crash does.
func (r *run) persist() {
	r.Helper()
	events := r.events()
	r.insert(events)
	for _, e := range events {
		r.must(r.rdb.XDel(r.Context(), keys.Orders(only), e.EntryID).Err())
	}
}

// insert makes rows of events, which stay in the stream.
func (r *run) insert(events []pipeline.Event) {
	r.Helper()
	generation, err := r.store.Generation(r.Context())
	r.must(err)
	_, err = r.store.PersistOrders(r.Context(), generation, events)
	r.must(err)
}

// leaveWith gives the next event to a worker that then does nothing about it for an hour.
func (r *run) leaveWith(worker string) {
	r.Helper()
	read, err := r.rdb.XReadGroup(r.Context(), &redis.XReadGroupArgs{
		Group: pipeline.Group, Consumer: worker, Streams: []string{keys.Orders(only), ">"}, Count: 1,
	}).Result()
	r.must(err)
	r.must(r.rdb.Do(r.Context(), "XCLAIM", keys.Orders(only), pipeline.Group, worker, 0, read[0].Messages[0].ID,
		"IDLE", time.Hour.Milliseconds(), "JUSTID").Err())
}

func (r *run) add(fields ...any) {
	r.Helper()
	r.must(r.rdb.XAdd(r.Context(), &redis.XAddArgs{Stream: keys.Orders(only), Values: fields}).Err())
}

// settled reports whether nothing is left to do: no event in the stream, none pending, no release in the outbox.
func (r *run) settled() bool {
	length, err := r.rdb.XLen(r.Context(), keys.Orders(only)).Result()
	if err != nil || length > 0 {
		return false
	}
	pending, err := r.rdb.XPending(r.Context(), keys.Orders(only), pipeline.Group).Result()
	if err != nil || pending.Count > 0 {
		return false
	}
	return r.count(`select count(*) from releases where applied_at is null`) == 0
}

func (r *run) count(query string, args ...any) (n int64) {
	r.Helper()
	r.must(r.pool.QueryRow(r.Context(), query, args...).Scan(&n))
	return n
}

// rows lists what a query of two columns yields, as "first second", sorted.
func (r *run) rows(query string) []string {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), query)
	r.must(err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var a, b string
		err := row.Scan(&a, &b)
		return a + " " + b, err
	})
	r.must(err)
	slices.Sort(list)
	return list
}

func (r *run) same(what string, got, want []string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// balanced audits a sale, and compares with our own reading who has a slot in Redis and how much is left there.
func (r *run) balanced(id string, live ...string) {
	r.Helper()
	report, err := audit.NewAuditor(r.rdb, keys, r.store).Audit(r.Context(), r.stored(id))
	if err != nil {
		r.Errorf("audit of %s: %v", id, err)
		return
	}
	if !report.Exact || !report.Clean() || report.InFlight != 0 || report.Unapplied != 0 {
		r.Errorf("audit of %s: exact %t, %d in flight, %d unapplied, findings %q; want true, 0, 0, none",
			id, report.Exact, report.InFlight, report.Unapplied, report.Findings)
	}
	slots, err := r.rdb.HGetAll(r.Context(), keys.Buyers(only, id)).Result()
	r.must(err)
	slices.Sort(live)
	r.same("buyers with a slot in "+id, slices.Sorted(maps.Keys(slots)), live)
	stock, err := r.rdb.HGet(r.Context(), keys.Sale(only, id), "stock").Int()
	if want := total - len(live); err != nil || stock != want {
		r.Errorf("stock of %s: got %d, %v, want %d", id, stock, err, want)
	}
}

// trusted reports whether Redis is open to buyers.
func (r *run) trusted() bool {
	verified, err := lua.ReadTrust(context.WithoutCancel(r.Context()), r.rdb, keys.ForVerify(only, ""))
	return err == nil && verified.Trust == lua.Trusted
}

func (r *run) ordersOf() []string { return r.rows(`select user_id, status from orders`) }

func (r *run) lettersOf() []string {
	return r.rows(`select reason, count(*)::text from dead_letters group by reason`)
}
