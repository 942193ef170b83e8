package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// busySale is a sale with an order in every state: ann's 3 units and bob's 2 are persisted, cat's 1 is in the stream,
// dan's 4 are expired and not given back, eve's 5 are given back, and so are fay's 6, which Postgres has not noted yet.
type busySale struct {
	*rig
	sale   *pipeline.Sale
	orders map[string]pipeline.Receipt // by user
}

func (r *rig) busySale(id string) *busySale {
	r.Helper()
	b := &busySale{r, r.createSale(pipeline.Sale{ID: id, Partitions: []pipeline.Partition{2, 0, 3}, PaymentWindow: time.Hour}), map[string]pipeline.Receipt{}}
	r.sale = b.sale // for admit, events and release
	for user, quantity := range map[string]int{"ann": 3, "bob": 2, "dan": 4, "eve": 5, "fay": 6} {
		b.orders[user] = r.admit(user, quantity)
	}
	r.persist(r.events(b.sale)...)
	b.orders["cat"] = r.admit("cat", 1)
	for _, user := range []string{"dan", "eve", "fay"} {
		r.end(b.orders[user].OrderID)
	}
	for _, user := range []string{"eve", "fay"} {
		r.release(user, b.orders[user].OrderID)
	}
	r.applied(b.orders["eve"].OrderID)
	return b
}

// applied notes in Postgres that an order's stock and slot are given back.
func (r *rig) applied(orderID string) {
	r.Helper()
	r.exec(1, `update releases set applied_at = now() where order_id = $1 and applied_at is null`, orderID)
}

// healthy is the report of a busy sale.
func healthy(id string) pipeline.AuditReport {
	return pipeline.AuditReport{
		SaleID: id, Total: 100, Stock: 90, Live: 5, InFlight: 1, Unapplied: 4, Orders: 5, Accepted: 6, Buyers: 4, Exact: true,
	}
}

func (b *busySale) look() pipeline.AuditReport {
	b.Helper()
	report, err := b.auditor.Look(b.ctx(), b.sale)
	if err != nil {
		b.Fatal(err)
	}
	return *report
}

func (b *busySale) partition(user string) pipeline.Partition { return b.sale.PartitionOf(user) }

func (b *busySale) saleKey(user string) string   { return b.keys.Sale(b.partition(user), b.sale.ID) }
func (b *busySale) buyersKey(user string) string { return b.keys.Buyers(b.partition(user), b.sale.ID) }

// done fails the test when tampering itself failed.
func (b *busySale) done(cmd redis.Cmder) {
	b.Helper()
	if cmd.Err() != nil {
		b.Fatal(cmd.Err())
	}
}

func TestAHealthySaleIsClean(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	r.createSale(pipeline.Sale{ID: "other", Partitions: []pipeline.Partition{2, 0, 3}})
	b := r.busySale("drop-1")
	if got, want := b.look(), healthy("drop-1"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	report, err := r.auditor.Audit(r.ctx(), b.sale)
	if err != nil || !report.Clean() || !report.Exact {
		t.Errorf("got %+v, %v", report, err)
	}
	// What is none of its orders is none of its business.
	b.done(r.rdb.XAdd(r.ctx(), &redis.XAddArgs{Stream: r.keys.Orders(2), Values: []string{"garbage", "in"}}))
	r.sale = r.stored("other")
	r.admitMany("ann", 5)
	if got, want := b.look(), healthy("drop-1"); !reflect.DeepEqual(got, want) {
		t.Errorf("beside others: got %+v, want %+v", got, want)
	}
}

// An empty sale, and one of which everything is sold and persisted.
func TestTheEndsOfASaleAreClean(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 30, Partitions: []pipeline.Partition{1}}})
	wantReport := func(want pipeline.AuditReport) {
		t.Helper()
		got, err := r.auditor.Look(r.ctx(), r.sale)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	wantReport(pipeline.AuditReport{SaleID: "drop-1", Total: 30, Stock: 30, Exact: true})
	r.admitMany("buyer", 30)
	wantReport(pipeline.AuditReport{SaleID: "drop-1", Total: 30, InFlight: 30, Accepted: 30, Buyers: 30, Exact: true})
	r.persist(r.events(r.sale)...)
	wantReport(pipeline.AuditReport{SaleID: "drop-1", Total: 30, Live: 30, Orders: 30, Accepted: 30, Buyers: 30, Exact: true})
}

// tampering is one way in which the two stores can come to disagree.
type tampering struct {
	name     string
	tamper   func(b *busySale)
	shows    func(r *pipeline.AuditReport)
	findings []string
}

// tamperings are all the ways in which the two stores can come to disagree, each with the numbers that must give it away and
// a word of each finding.
var tamperings = []tampering{
	{
		"a unit too many in stock", func(b *busySale) { b.done(b.rdb.HIncrBy(b.ctx(), b.saleKey("ann"), "stock", 1)) },
		func(r *pipeline.AuditReport) { r.Stock, r.Drift = 91, -1 },
		[]string{"1 units are sold twice"},
	},
	{
		"a unit missing in stock", func(b *busySale) { b.done(b.rdb.HIncrBy(b.ctx(), b.saleKey("ann"), "stock", -1)) },
		func(r *pipeline.AuditReport) { r.Stock, r.Drift = 89, 1 },
		[]string{"1 units are missing"},
	},
	{
		"a stock below zero", func(b *busySale) { b.done(b.rdb.HIncrBy(b.ctx(), b.saleKey("ann"), "stock", -91)) },
		func(r *pipeline.AuditReport) { r.Stock, r.Drift = -1, 91 },
		[]string{"91 units are missing", "stock in Redis is -1"},
	},
	{
		"a live order without a slot", func(b *busySale) { b.done(b.rdb.HDel(b.ctx(), b.buyersKey("ann"), "ann")) },
		func(r *pipeline.AuditReport) { r.Buyers, r.LostBuyers = 3, 1 },
		[]string{"1 orders have no buyer"},
	},
	{
		"an order in flight without a slot", func(b *busySale) { b.done(b.rdb.HDel(b.ctx(), b.buyersKey("cat"), "cat")) },
		func(r *pipeline.AuditReport) { r.Buyers, r.LostBuyers = 3, 1 },
		[]string{"1 orders have no buyer"},
	},
	{
		"a slot freed whose stock is not given back", func(b *busySale) { b.done(b.rdb.HDel(b.ctx(), b.buyersKey("dan"), "dan")) },
		func(r *pipeline.AuditReport) { r.Buyers, r.Unapplied, r.Drift = 3, 0, 4 },
		[]string{"4 units are missing"},
	},
	{
		"stock given back whose slot is not freed", func(b *busySale) { b.done(b.rdb.HIncrBy(b.ctx(), b.saleKey("dan"), "stock", 4)) },
		func(r *pipeline.AuditReport) { r.Stock, r.Drift = 94, -4 },
		[]string{"4 units are sold twice"},
	},
	{
		"a slot of nobody's order", func(b *busySale) {
			b.done(b.rdb.HSet(b.ctx(), b.buyersKey("zoe"), "zoe", uuid.NewString()+" 1 1 1 3 - -"))
		},
		func(r *pipeline.AuditReport) { r.Buyers, r.StrayBuyers = 5, 1 },
		[]string{"1 buyers are marked"},
	},
	{
		"a slot of an accept that was never counted", func(b *busySale) {
			b.done(b.rdb.HSet(b.ctx(), b.buyersKey("zoe"), "zoe", uuid.NewString()+" 1 1 1 999 - -"))
		},
		func(r *pipeline.AuditReport) { r.Buyers, r.StrayBuyers = 5, 1 },
		[]string{"1 buyers are marked"},
	},
	{
		"a slot that names another order", func(b *busySale) {
			b.done(b.rdb.HSet(b.ctx(), b.buyersKey("ann"), "ann", uuid.NewString()+" 3 1 1 1 - -"))
		},
		func(r *pipeline.AuditReport) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"a slot that can't be read", func(b *busySale) { b.done(b.rdb.HSet(b.ctx(), b.buyersKey("ann"), "ann", "garbage")) },
		func(r *pipeline.AuditReport) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"an event deleted", func(b *busySale) { b.forget(b.events(b.sale)...) },
		func(r *pipeline.AuditReport) { r.InFlight, r.Drift, r.StrayBuyers = 0, 1, 1 },
		[]string{"1 units are missing", "1 buyers are marked"},
	},
	{
		"an event without an accept", func(b *busySale) {
			b.done(b.rdb.XAdd(b.ctx(), &redis.XAddArgs{Stream: b.keys.Orders(b.partition("zoe")), Values: []string{
				"v", "1", "s", b.sale.ID, "k", "1", "o", uuid.NewString(), "n", "1", "u", "zoe", "q", "2", "t", "1",
			}}))
		},
		func(r *pipeline.AuditReport) { r.InFlight, r.Drift, r.LostBuyers = 3, -2, 1 },
		[]string{"2 units are sold twice", "1 orders have no buyer"},
	},
	{
		"a row deleted", func(b *busySale) { b.exec(1, `delete from orders where id = $1`, b.orders["bob"].OrderID) },
		func(r *pipeline.AuditReport) { r.Live, r.Orders, r.Drift, r.StrayBuyers = 3, 4, 2, 1 },
		[]string{"2 units are missing", "counts 5 units sold, its live orders hold 3", "1 buyers are marked"},
	},
	{
		"a row with a unit more", func(b *busySale) {
			b.exec(1, `update orders set quantity = quantity + 1 where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *pipeline.AuditReport) { r.Live, r.Drift = 6, -1 },
		[]string{"1 units are sold twice", "counts 5 units sold, its live orders hold 6"},
	},
	{
		"more sold than there is", func(b *busySale) {
			b.exec(1, `update orders set quantity = 200 where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *pipeline.AuditReport) { r.Live, r.Drift = 203, -198 },
		[]string{"198 units are sold twice", "203 units are in live orders, of 100", "counts 5 units sold"},
	},
	{
		"a row of another buyer", func(b *busySale) {
			b.exec(1, `update orders set user_id = 'zoe' where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *pipeline.AuditReport) { r.StrayBuyers, r.LostBuyers = 1, 1 },
		[]string{"1 buyers are marked", "1 orders have no buyer"},
	},
	{
		"a row that ended without a release", func(b *busySale) {
			b.exec(1, `update orders set status = 'cancelled', closed_at = now() where id = $1`, b.orders["bob"].OrderID)
		},
		func(r *pipeline.AuditReport) { r.Live, r.Drift, r.StrayBuyers = 3, 2, 1 },
		[]string{"2 units are missing", "counts 5 units sold, its live orders hold 3", "1 buyers are marked"},
	},
	{
		"a row of an accept that Redis has lost", func(b *busySale) {
			b.exec(1, `
				insert into orders (sale_id, id, number, user_id, quantity, status, partition, sequence, accepted_at)
				values ($1, $2, 1, 'zoe', 2, 'confirmed', 0, 999, now())`, b.sale.ID, uuid.New())
			b.exec(1, `update sales set sold = sold + 2 where id = $1`, b.sale.ID)
		},
		func(r *pipeline.AuditReport) { r.Live, r.Orders, r.Drift, r.LostBuyers = 7, 6, -2, 1 },
		[]string{"2 units are sold twice", "1 orders have no buyer"},
	},
	{
		"a release deleted", func(b *busySale) { b.exec(1, `delete from releases where order_id = $1`, b.orders["dan"].OrderID) },
		func(r *pipeline.AuditReport) { r.Unapplied, r.Drift, r.StrayBuyers = 0, 4, 1 },
		[]string{"4 units are missing", "1 buyers are marked"},
	},
	{
		"a release that is noted but not done", func(b *busySale) { b.applied(b.orders["dan"].OrderID) },
		func(r *pipeline.AuditReport) { r.Unapplied, r.Drift, r.StrayBuyers = 0, 4, 1 },
		[]string{"4 units are missing", "1 buyers are marked"},
	},
	{
		"a counter of sold units that is off", func(b *busySale) {
			b.exec(1, `update sales set sold = sold + 1 where id = $1`, b.sale.ID)
		},
		func(*pipeline.AuditReport) {},
		[]string{"counts 6 units sold, its live orders hold 5"},
	},
	{
		"another total in Redis", func(b *busySale) { b.done(b.rdb.HIncrBy(b.ctx(), b.saleKey("ann"), "total", 5)) },
		func(*pipeline.AuditReport) {},
		[]string{"total is 105 in Redis and 100 in Postgres"},
	},
	{
		"another total in Postgres", func(b *busySale) { b.exec(1, `update sales set total = 105 where id = $1`, b.sale.ID) },
		func(r *pipeline.AuditReport) { r.Total, r.Drift = 105, 5 },
		[]string{"5 units are missing", "total is 100 in Redis and 105 in Postgres"},
	},
}

func TestEveryTamperingIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{NoSale: true})
	for i, test := range tamperings {
		b := r.busySale(fmt.Sprintf("drop-%d", i))
		test.tamper(b)
		got, want := b.look(), healthy(b.sale.ID)
		test.shows(&want)
		want.Findings = got.Findings // compared below
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", test.name, got, want)
		}
		if len(got.Findings) != len(test.findings) || got.Clean() {
			t.Errorf("%s: got findings %q, want %d", test.name, got.Findings, len(test.findings))
			continue
		}
		for i, says := range test.findings {
			if !strings.Contains(got.Findings[i], says) {
				t.Errorf("%s: got finding %q, want %q", test.name, got.Findings[i], says)
			}
		}
		for _, p := range b.sale.Partitions { // the streams are shared, and garbage in them is not the next sale's
			b.done(r.rdb.Del(r.ctx(), r.keys.Orders(p)))
		}
	}
}

func TestAnAuditThatCannotLook(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admit("ann", 1)
	proxies := map[string]func() (pipeline.Auditor, func()){
		"Redis": func() (pipeline.Auditor, func()) {
			p := through(t, redisURL(r))
			return *pipeline.NewAuditor(testkit.Client(t, p.URL()), r.keys, r.store), p.Cut
		},
		"Postgres": func() (pipeline.Auditor, func()) {
			p := through(t, withoutTLS(t, r.opts.DatabaseURL))
			return *pipeline.NewAuditor(r.rdb, r.keys, r.openStore(p.URL())), p.Cut
		},
	}
	for name, open := range proxies {
		auditor, cut := open()
		if report, err := auditor.Audit(r.ctx(), r.sale); err != nil || !report.Clean() {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		cut()
		report, err := auditor.Audit(r.ctx(), r.sale)
		if pipeline.KindOf(err) != pipeline.KindUnavailable || report != nil {
			t.Errorf("without %s: got %+v, %v, want unavailable", name, report, err)
		}
	}
	r.lose(r.sale)
	_, err := r.auditor.Audit(r.ctx(), r.sale)
	wantKind(t, err, pipeline.KindNotLoaded)
}

// lastLook ends a caller's time in the middle of a look.
type lastLook struct {
	pipeline.LedgerSource
	looks int // with the one that is cut off
	over  context.CancelFunc
}

func (l *lastLook) Ledger(ctx context.Context, saleID string, inFlight []string, live, unapplied func(pipeline.LedgerOrder) error) (pipeline.Ledger, error) {
	if l.looks--; l.looks == 0 {
		l.over()
	}
	return l.LedgerSource.Ledger(ctx, saleID, inFlight, live, unapplied)
}

// A finding that does not go away is told in the end, also to a caller who had no time for all the looks.
func TestAFindingIsToldHoweverShortTheTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.admit("ann", 1)
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(r.sale.Partitions[0], r.sale.ID), "stock", 1).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	ledger := &lastLook{LedgerSource: r.store, looks: 2, over: cancel}
	report, err := pipeline.NewAuditor(r.rdb, r.keys, ledger).Audit(ctx, r.sale)
	if err != nil || !report.Exact || report.Drift != -1 || len(report.Findings) != 1 {
		t.Errorf("got %+v, %v, want the unit that is sold twice", report, err)
	}
}

// market moves a sale all the time: buyers order, events are persisted, and if wanted orders expire and are given back.
type market struct {
	*rig
	stop     context.CancelFunc
	running  sync.WaitGroup
	accepted atomic.Int64
	released atomic.Int64
}

func (r *rig) openMarket(seed uint64, expiring bool) *market {
	m := &market{rig: r}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	persisted := make(chan pipeline.Event, 1<<16)
	for i := range 3 {
		m.running.Go(func() { m.buy(ctx, fmt.Sprintf("buyer-%d", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	m.running.Go(func() { m.persistAll(ctx, persisted) })
	if expiring {
		m.running.Go(func() { m.expire(ctx, persisted) })
	}
	r.Cleanup(m.close)
	return m
}

// close lets everybody finish. What is in the stream then stays there.
func (m *market) close() {
	m.stop()
	m.running.Wait()
}

// buy orders in bursts, for a small crowd that orders again once its orders are given back.
func (m *market) buy(ctx context.Context, name string, rnd *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		user := fmt.Sprintf("%s-%d", name, n)
		if rnd.IntN(2) == 0 {
			user = fmt.Sprintf("%s-again-%d", name, rnd.IntN(50))
		}
		decision, err := m.try(pipeline.OrderRequest{UserID: user, Quantity: 1 + rnd.IntN(3)})
		if err != nil {
			m.Errorf("order: %v", err)
			return
		}
		if decision.Code == lua.AdmitAccepted {
			m.accepted.Add(1)
		}
	}
}

func (m *market) persistAll(ctx context.Context, persisted chan<- pipeline.Event) {
	for ctx.Err() == nil {
		events := m.events(m.sale)
		m.persist(events[:min(len(events), pipeline.MaxPersistBatch)]...)
		for _, e := range events[:min(len(events), pipeline.MaxPersistBatch)] {
			select {
			case persisted <- e:
			default:
			}
		}
	}
}

func (m *market) expire(ctx context.Context, persisted <-chan pipeline.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-persisted:
			m.end(e.OrderID)
			m.release(e.UserID, e.OrderID)
			m.applied(e.OrderID)
			m.released.Add(1)
		}
	}
}

// Buyers alone do not keep an audit from being exact: it counts up to the accept at which it began.
func TestAnAuditWhileBuyersOrder(t *testing.T) {
	t.Parallel()
	const seed, looks = 20261121, 100
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1 << 30, Partitions: []pipeline.Partition{2, 0}, PaymentWindow: time.Hour}})
	m := r.openMarket(seed, false)
	testkit.Eventually(t, callLimit, "the market to move", func() bool { return m.accepted.Load() > 100 })
	moved := 0
	for i := range looks {
		accepted := m.accepted.Load()
		report, err := r.auditor.Look(r.ctx(), r.sale)
		if err != nil {
			t.Fatal(err)
		}
		if !report.Clean() || !report.Exact || report.Drift != 0 {
			t.Fatalf("look %d, seed %d: got %+v, want it exact and clean", i, seed, report)
		}
		if m.accepted.Load() > accepted {
			moved++
		}
	}
	if moved < looks/2 {
		t.Errorf("orders came during %d of %d looks: that proves little", moved, looks)
	}
	// A unit that goes missing meanwhile is found all the same.
	if err := r.rdb.HIncrBy(r.ctx(), r.keys.Sale(2, r.sale.ID), "stock", -1).Err(); err != nil {
		t.Fatal(err)
	}
	if report, err := r.auditor.Look(r.ctx(), r.sale); err != nil || !report.Exact || report.Drift != 1 {
		t.Errorf("got %+v, %v, want one unit missing", report, err)
	}
	m.close()
	t.Logf("%d orders, %d of %d looks with orders meanwhile", m.accepted.Load(), moved, looks)
}

func TestAnAuditWhileOrdersExpire(t *testing.T) {
	t.Parallel()
	const seed, looks = 20261121, 50
	r := newRig(t, rigOptions{Sale: pipeline.Sale{Total: 1 << 30, Partitions: []pipeline.Partition{2, 0}, PaymentWindow: time.Hour}})
	m := r.openMarket(seed, true)
	testkit.Eventually(t, callLimit, "the market to move", func() bool { return m.released.Load() > 10 })
	exact := 0
	for i := range looks {
		report, err := r.auditor.Look(r.ctx(), r.sale)
		if err != nil {
			t.Fatal(err)
		}
		if !report.Clean() {
			t.Fatalf("look %d, seed %d: got %+v, want no finding", i, seed, report)
		}
		if report.Exact {
			exact++
		}
	}
	m.close()
	report, err := r.auditor.Audit(r.ctx(), r.sale)
	if err != nil || !report.Clean() || !report.Exact {
		t.Errorf("in the end: got %+v, %v", report, err)
	}
	t.Logf("%d orders, %d given back, %d of %d looks exact", m.accepted.Load(), m.released.Load(), exact, looks)
}
