package pipeline_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
)

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
