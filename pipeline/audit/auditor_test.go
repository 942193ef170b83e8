package audit_test

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/pipelinetest"
)

// healthy is the report of a busy sale.
func healthy(id string) audit.Report {
	return audit.Report{
		SaleID: id, Total: 100, Stock: 90, Live: 5, InFlight: 1, Unapplied: 4, Orders: 5, Accepted: 6, Buyers: 4, Exact: true,
	}
}

func look(b *pipelinetest.BusySaleRig) audit.Report {
	b.Helper()
	report, err := b.Auditor.Look(b.Ctx(), b.Sale)
	if err != nil {
		b.Fatal(err)
	}
	return *report
}

func TestAHealthySaleIsClean(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	r.CreateSale(pipeline.Sale{ID: "other", Partitions: []pipeline.Partition{2, 0, 3}})
	b := r.BusySale("drop-1")
	if got, want := look(b), healthy("drop-1"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	report, err := r.Auditor.Audit(r.Ctx(), b.Sale)
	if err != nil || !report.Clean() || !report.Exact {
		t.Errorf("got %+v, %v", report, err)
	}
	// What is none of the sale's orders does not count.
	b.Done(r.Redis.XAdd(r.Ctx(), &redis.XAddArgs{Stream: r.Keys.Orders(2), Values: []string{"garbage", "in"}}))
	r.Sale = r.Stored("other")
	r.AdmitMany("ann", 5)
	if got, want := look(b), healthy("drop-1"); !reflect.DeepEqual(got, want) {
		t.Errorf("beside others: got %+v, want %+v", got, want)
	}
}

// An empty sale, and one of which everything is sold and persisted.
func TestTheEndsOfASaleAreClean(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Total: 30, Partitions: []pipeline.Partition{1}}})
	wantReport := func(want audit.Report) {
		t.Helper()
		got, err := r.Auditor.Look(r.Ctx(), r.Sale)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	wantReport(audit.Report{SaleID: "drop-1", Total: 30, Stock: 30, Exact: true})
	r.AdmitMany("buyer", 30)
	wantReport(audit.Report{SaleID: "drop-1", Total: 30, InFlight: 30, Accepted: 30, Buyers: 30, Exact: true})
	r.Persist(r.Events(r.Sale)...)
	wantReport(audit.Report{SaleID: "drop-1", Total: 30, Live: 30, Orders: 30, Accepted: 30, Buyers: 30, Exact: true})
}

func TestEveryTamperingIsFound(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{NoSale: true})
	for i, test := range pipelinetest.Tamperings {
		b := r.BusySale(fmt.Sprintf("drop-%d", i))
		test.Tamper(b)
		got, want := look(b), healthy(b.Sale.ID)
		test.Shows(&want)
		want.Findings = got.Findings // compared below
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", test.Name, got, want)
		}
		if len(got.Findings) != len(test.Findings) || got.Clean() {
			t.Errorf("%s: got findings %q, want %d", test.Name, got.Findings, len(test.Findings))
			continue
		}
		for i, says := range test.Findings {
			if !strings.Contains(got.Findings[i], says) {
				t.Errorf("%s: got finding %q, want %q", test.Name, got.Findings[i], says)
			}
		}
		for _, p := range b.Sale.Partitions { // the streams are shared, and garbage in them is not the next sale's
			b.Done(r.Redis.Del(r.Ctx(), r.Keys.Orders(p)))
		}
	}
}

func TestAnAuditThatCannotLook(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.Admit("ann", 1)
	proxies := map[string]func() (audit.Auditor, func()){
		"Redis": func() (audit.Auditor, func()) {
			p := pipelinetest.Through(t, pipelinetest.RedisURL(r))
			return *audit.NewAuditor(testkit.Client(t, p.URL()), r.Keys, r.Store), p.Cut
		},
		"Postgres": func() (audit.Auditor, func()) {
			p := pipelinetest.Through(t, pipelinetest.WithoutTLS(t, r.Options.DatabaseURL))
			return *audit.NewAuditor(r.Redis, r.Keys, r.OpenStore(p.URL())), p.Cut
		},
	}
	for name, open := range proxies {
		auditor, cut := open()
		if report, err := auditor.Audit(r.Ctx(), r.Sale); err != nil || !report.Clean() {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		cut()
		report, err := auditor.Audit(r.Ctx(), r.Sale)
		if pipeline.KindOf(err) != pipeline.KindUnavailable || report != nil {
			t.Errorf("without %s: got %+v, %v, want unavailable", name, report, err)
		}
	}
	r.Lose(r.Sale)
	_, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
}

// lastLook ends a caller's time in the middle of a look.
type lastLook struct {
	audit.LedgerSource
	looks int // with the one that is cut off
	over  context.CancelFunc
}

func (l *lastLook) Ledger(
	ctx context.Context, saleID string, inFlight iter.Seq[string],
	known, live, unapplied func(pipeline.LedgerOrder) error,
) (pipeline.Ledger, error) {
	if l.looks--; l.looks == 0 {
		l.over()
	}
	return l.LedgerSource.Ledger(ctx, saleID, inFlight, known, live, unapplied)
}

// A finding that does not go away is reported in the end, also to a caller who had no time for all the looks.
func TestAFindingIsReportedHoweverShortTheTime(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{})
	r.Admit("ann", 1)
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(r.Sale.Partitions[0], r.Sale.ID), "stock", 1).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.Ctx())
	defer cancel()
	ledger := &lastLook{LedgerSource: r.Store, looks: 2, over: cancel}
	report, err := audit.NewAuditor(r.Redis, r.Keys, ledger).Audit(ctx, r.Sale)
	if err != nil || !report.Exact || report.Drift != -1 || len(report.Findings) != 1 {
		t.Errorf("got %+v, %v, want the unit that is too many", report, err)
	}
}

// Buyers alone do not keep an audit from being exact: it counts up to the accept at which it began.
func TestAnAuditWhileBuyersOrder(t *testing.T) {
	t.Parallel()
	const seed, looks = 20261121, 100
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{Total: 1 << 30, Partitions: []pipeline.Partition{2, 0}, PaymentWindow: time.Hour},
	})
	m := r.OpenMarket(seed, false)
	testkit.Eventually(t, pipelinetest.CallLimit, "the market to move", func() bool { return m.Accepted.Load() > 100 })
	moved := 0
	for i := range looks {
		accepted := m.Accepted.Load()
		report, err := r.Auditor.Look(r.Ctx(), r.Sale)
		if err != nil {
			t.Fatal(err)
		}
		if !report.Clean() || !report.Exact || report.Drift != 0 {
			t.Fatalf("look %d, seed %d: got %+v, want it exact and clean", i, seed, report)
		}
		if m.Accepted.Load() > accepted {
			moved++
		}
	}
	if moved < looks/2 {
		t.Errorf("orders came during %d of %d looks: that proves little", moved, looks)
	}
	// A unit that goes missing meanwhile is found all the same.
	if err := r.Redis.HIncrBy(r.Ctx(), r.Keys.Sale(2, r.Sale.ID), "stock", -1).Err(); err != nil {
		t.Fatal(err)
	}
	if report, err := r.Auditor.Look(r.Ctx(), r.Sale); err != nil || !report.Exact || report.Drift != 1 {
		t.Errorf("got %+v, %v, want one unit missing", report, err)
	}
	m.Close()
	t.Logf("%d orders, %d of %d looks with orders meanwhile", m.Accepted.Load(), moved, looks)
}

func TestAnAuditWhileOrdersExpire(t *testing.T) {
	t.Parallel()
	const seed, looks = 20261121, 50
	r := pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{Total: 1 << 30, Partitions: []pipeline.Partition{2, 0}, PaymentWindow: time.Hour},
	})
	m := r.OpenMarket(seed, true)
	testkit.Eventually(t, pipelinetest.CallLimit, "the market to move", func() bool { return m.Released.Load() > 10 })
	exact := 0
	for i := range looks {
		report, err := r.Auditor.Look(r.Ctx(), r.Sale)
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
	m.Close()
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Clean() || !report.Exact {
		t.Errorf("in the end: got %+v, %v", report, err)
	}
	t.Logf("%d orders, %d given back, %d of %d looks exact", m.Accepted.Load(), m.Released.Load(), exact, looks)
}
