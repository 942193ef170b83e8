package audit_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/pipelinetest"
)

func mustLookAtClosed(r *pipelinetest.Rig) audit.Report {
	r.Helper()
	report, err := r.Auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.PostgresAlone {
		r.Fatalf("got %+v, %v, want a report from Postgres alone", report, err)
	}
	return *report
}

// A sale that is over and gone from Redis is judged by Postgres, for ever, and with the numbers that both stores had.
// One that is not over yet is lost.
func TestPostgresAloneTellsOfASaleThatIsOver(t *testing.T) {
	t.Parallel()
	c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
	before, err := c.Auditor.Audit(c.Ctx(), c.Sale)
	if err != nil || !before.Clean() || !before.Exact || before.PostgresAlone {
		t.Fatalf("by both stores: got %+v, %v", before, err)
	}
	c.Vanish(c.Sale)
	_, err = c.Auditor.Audit(c.Ctx(), c.Sale)
	pipelinetest.WantKind(t, err, pipeline.KindNotLoaded)
	c.Over(c.Sale.ID)
	want := *before
	want.PostgresAlone, want.Buyers = true, 0
	if got := mustLookAtClosed(c.Rig); !reflect.DeepEqual(got, want) || got.Live != 3 || got.Stock != 96 {
		t.Errorf("by Postgres alone: got\n%+v, want\n%+v", got, want)
	}
}

// A sale without orders, on several partitions, and one whose last row was rejected.
func TestTheEndsOfAClosedSaleAreClean(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Partitions: []pipeline.Partition{2, 0, 3}}})
	r.Over(r.Sale.ID)
	r.Vanish(r.Sale)
	want := audit.Report{SaleID: r.Sale.ID, Total: 100, Stock: 100, Exact: true, PostgresAlone: true}
	if got := mustLookAtClosed(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The half of a sale that Redis has is no sale: its books are Postgres'.
func TestHalfASaleIsJudgedByPostgres(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Partitions: []pipeline.Partition{2, 0}}})
	r.AdmitMany("buyer", 10)
	r.Persist(r.Events(r.Sale)...)
	r.Over(r.Sale.ID)
	half := *r.Sale
	half.Partitions = half.Partitions[:1]
	r.Vanish(&half)
	if got := mustLookAtClosed(r); !got.Clean() || got.Live != 10 || got.Stock != 90 {
		t.Errorf("got %+v, want a clean report", got)
	}
}

func TestEveryTamperingOfAClosedSaleIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range pipelinetest.ClosedTamperings {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			c := pipelinetest.ClosedSale(pipelinetest.New(t, pipelinetest.Options{NoSale: true}))
			c.Over(c.Sale.ID)
			c.Vanish(c.Sale)
			test.Tamper(c)
			got := mustLookAtClosed(c.Rig)
			if len(got.Findings) != len(test.Findings) || got.Clean() {
				t.Fatalf("got findings %q, want %q", got.Findings, test.Findings)
			}
			for i, says := range test.Findings {
				if !strings.Contains(got.Findings[i], says) {
					t.Errorf("got finding %q, want %q", got.Findings[i], says)
				}
			}
		})
	}
}

// An event that outlived its sale in Redis is in flight, and neither a gap nor a finding, until it is persisted. A
// receipt that neither store has is found.
func TestWhatAClosedSaleStillOwes(t *testing.T) {
	t.Parallel()
	r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Partitions: []pipeline.Partition{1}}})
	r.AdmitMany("buyer", 3)
	events := r.Events(r.Sale)
	r.Persist(events[0], events[2])
	r.Over(r.Sale.ID)
	r.Vanish(r.Sale)
	if got := mustLookAtClosed(r); !got.Clean() || got.Exact || got.InFlight != 1 || got.Live != 2 {
		t.Errorf("in flight: got %+v", got)
	}
	r.Persist(events[1])
	if got := mustLookAtClosed(r); !got.Clean() || !got.Exact || got.InFlight != 0 || got.Live != 3 {
		t.Errorf("persisted: got %+v", got)
	}
	known := pipeline.OrderKey{SaleID: r.Sale.ID, OrderID: events[1].OrderID}
	lost := pipeline.OrderKey{SaleID: r.Sale.ID, OrderID: uuid.Must(uuid.NewV7()).String()}
	report, err := r.Auditor.With(audit.Witness{File: "a.journal", Orders: []pipeline.OrderKey{known, lost}}).
		Audit(r.Ctx(), r.Sale)
	if err != nil || report.LostReceipts != 1 || len(report.Findings) != 1 {
		t.Errorf("a lost receipt: got %+v, %v", report, err)
	}
}

// A letter of which nothing could be read explains one missing accept, and not two; and none of a sale that was over
// before its entry came, or that was made after it.
func TestAWreckedAcceptIsExplained(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := strconv.FormatInt(time.Now().UnixMilli(), 10) + "-1"
	for _, test := range []struct {
		name, entry string
		sale        string
		letterAge   time.Duration
		finding     string
	}{
		{"in time", "1-1", "", 0, "1 accepts have no order"},
		{"a sale that is none", "1-1", "zzz", 0, "1 accepts have no order"},
		{"an entry after the sale", now, "", 0, "2 accepts have no order"},
		{"a letter before the sale", "1-1", "", 50 * day, "2 accepts have no order"},
		{"an id that is no time", "99999999999999999999-1", "", 0, "2 accepts have no order"},
		{"an id of the future, and a letter in time", "999999999999999-1", "", 35 * day, "1 accepts have no order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := pipelinetest.New(t, pipelinetest.Options{Sale: pipeline.Sale{Partitions: []pipeline.Partition{1}}})
			r.AdmitMany("buyer", 4)
			events := r.Events(r.Sale)
			r.Persist(events[2:]...)
			r.Forget(events[:2]...)
			r.Exec(1, `update sales set created_at = created_at - interval '40 days'`)
			r.Exec(1, `
				insert into dead_letters (partition, entry_id, payload, reason, error, deliveries, created_at, sale_id)
				values (1, $1, '{"garbage": "in"}', 'undecodable', 'test', 1, now() - $2::interval, $3)`,
				test.entry, test.letterAge, test.sale)
			r.Over(r.Sale.ID)
			r.Vanish(r.Sale)
			got := mustLookAtClosed(r)
			if len(got.Findings) != 1 || !strings.HasPrefix(got.Findings[0], test.finding) {
				t.Errorf("got %+v, want %s", got, test.finding)
			}
		})
	}
}
