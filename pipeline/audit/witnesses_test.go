package audit_test

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
)

const installation = "0190b5f0-0000-7000-8000-000000000000"

// openJournal is the journal of one api process. What it takes over, and what it leaves, is overdue at once.
func openJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j := journal.Open(journal.Options{Dir: dir, Installation: installation, AppendTimeout: time.Minute})
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// journaled is a rig whose admission has a journal.
func journaled(t *testing.T) (r *pipelinetest.Rig, j *journal.Journal, dir string) {
	t.Helper()
	dir = t.TempDir()
	j = openJournal(t, dir)
	r = pipelinetest.New(t, pipelinetest.Options{
		Sale: pipeline.Sale{PaymentWindow: time.Hour}, Admission: admission.Options{Journal: j},
	})
	if err := j.Announce(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	return r, j, dir
}

// vanish takes an accept out of Redis, as if it had never been.
func vanish(r *pipelinetest.Rig, e pipeline.Event) {
	r.Helper()
	r.Forget(e)
	if err := r.Redis.HDel(r.Ctx(), r.Keys.Buyers(e.Partition, e.SaleID), e.UserID).Err(); err != nil {
		r.Fatal(err)
	}
	sale := r.Keys.Sale(e.Partition, e.SaleID)
	if err := r.Redis.HIncrBy(r.Ctx(), sale, "stock", int64(e.Quantity)).Err(); err != nil {
		r.Fatal(err)
	}
	if err := r.Redis.HIncrBy(r.Ctx(), sale, "accepted", -1).Err(); err != nil {
		r.Fatal(err)
	}
}

func mustAudit(r *pipelinetest.Rig, auditor *audit.Auditor) *audit.Report {
	r.Helper()
	report, err := auditor.Audit(r.Ctx(), r.Sale)
	if err != nil || !report.Exact {
		r.Fatalf("got %+v, %v, want an exact audit", report, err)
	}
	return report
}

// An order that both stores have lost is found by the journal of the api that gave the receipt, and by nothing else.
// What is on its way, stored or buried is no finding, and neither is the order once it is submitted again.
func TestAVanishedReceiptIsFound(t *testing.T) {
	t.Parallel()
	r, j, dir := journaled(t)
	r.AdmitMany("buyer", 4)
	events := r.Events(r.Sale)
	lost := events[3] // the last one, so that the counters can be turned back
	if err := j.Leave(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	if report := mustAudit(r, r.Auditor); !report.Clean() || report.LostReceipts != 0 || report.InFlight != 4 {
		t.Fatalf("in flight: got %+v, want no finding", report)
	}
	r.Persist(events[0])
	if err := r.Burier().BuryLost(r.Ctx(), &events[1], "lost:"+events[1].OrderID, "for the test"); err != nil {
		t.Fatal(err)
	}
	r.Forget(events[1])
	r.Release(events[1].UserID, events[1].OrderID)
	if report := mustAudit(r, r.Auditor); !report.Clean() || report.InFlight != 2 || report.Rejected != 1 {
		t.Fatalf("stored and buried: got %+v, want no finding", report)
	}
	vanish(r, lost)
	report := mustAudit(r, r.Auditor)
	host, _ := os.Hostname()
	if report.Clean() || report.Drift != 0 || report.LostReceipts != 1 || len(report.Findings) != 1 {
		t.Fatalf("got %+v, want the receipt that is in neither store", report)
	}
	for _, says := range []string{"1 receipts", journals(t, r)[0], host, "sluice journal replay --apply"} {
		if !strings.Contains(report.Findings[0], says) {
			t.Errorf("got finding %q, want %q in it", report.Findings[0], says)
		}
	}

	// What the finding says is to be done, and then the next process.
	next := openJournal(t, dir)
	if err := next.Announce(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	err := next.Each(r.Ctx(), r.Sale.Partitions, func(at pipeline.SalePartition, accepts []pipeline.Accept) error {
		_, err := r.Resubmitter().Resubmit(r.Ctx(), at, accepts)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if report := mustAudit(r, r.Auditor); !report.Clean() || report.InFlight != 2 {
		t.Errorf("submitted again: got %+v, want no finding", report)
	}
	r.WorkAll()
	if err := next.Trim(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	if left, err := r.Store.Witnesses(r.Ctx(), r.Sale.ID); err != nil || len(left) != 0 {
		t.Errorf("settled: got reports %+v, %v, want none", left, err)
	}
}

// journals names those that Postgres knows of.
func journals(t *testing.T, r *pipelinetest.Rig) (ids []string) {
	t.Helper()
	err := r.SQL.QueryRow(r.Ctx(), `select array_agg(id::text) from accept_journals`).Scan(&ids)
	if err != nil || len(ids) == 0 {
		t.Fatalf("journals %q, %v", ids, err)
	}
	return ids
}

// duringALook does something at two points of a look.
type duringALook struct {
	audit.LedgerSource
	witnessed, streamRead func() // once the journals, and once slots and stream were read
}

func (l *duringALook) Witnesses(ctx context.Context, saleID string) ([]audit.Witness, error) {
	witnesses, err := l.LedgerSource.Witnesses(ctx, saleID)
	l.witnessed()
	return witnesses, err
}

func (l *duringALook) Ledger(
	ctx context.Context, saleID string, inFlight iter.Seq[string],
	known, live, unapplied func(pipeline.LedgerOrder) error,
) (pipeline.Ledger, error) {
	l.streamRead()
	return l.LedgerSource.Ledger(ctx, saleID, inFlight, known, live, unapplied)
}

// An order that travels during a look is no finding, wherever it is when the look passes.
func TestReceiptsTravelDuringALook(t *testing.T) {
	t.Parallel()
	r, j, dir := journaled(t)
	r.AdmitMany("early", 3)
	if err := j.Leave(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	next := openJournal(t, dir)
	if err := next.Announce(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	admission := r.NewAdmission(r.Redis, admission.Options{Journal: next})
	persisted, admitted := false, false
	look := &duringALook{
		LedgerSource: r.Store,
		witnessed: func() { // gone from the stream before it is read
			if !persisted {
				first := r.Events(r.Sale)[0]
				r.Persist(r.Events(r.Sale)...)
				r.End(first.OrderID) // its slot is gone as well
				r.Release(first.UserID, first.OrderID)
			}
			persisted = true
		},
		streamRead: func() { // accepted behind the look's back, and reported before it ends
			if !admitted {
				request := pipeline.OrderRequest{UserID: "late", Quantity: 1}
				if got, err := admission.Admit(r.Ctx(), r.Sale, request); err != nil || !got.Receipt.Journaled {
					t.Errorf("got %+v, %v, want a receipt", got, err)
				}
				if err := next.Leave(r.Ctx(), r.Store); err != nil {
					t.Error(err)
				}
			}
			admitted = true
		},
	}
	report, err := audit.NewAuditor(r.Redis, r.Keys, look).Look(r.Ctx(), r.Sale)
	if err != nil || !report.Clean() || report.LostReceipts != 0 || !persisted || !admitted {
		t.Errorf("got %+v, %v, want no finding", report, err)
	}
	witnesses, err := r.Store.Witnesses(r.Ctx(), r.Sale.ID)
	if err != nil || len(witnesses) == 0 {
		t.Errorf("got %+v, %v: the journals report nothing, so this proves nothing", witnesses, err)
	}
}

// Files of a machine that is gone are believed like reports of a running api, and a receipt that both have is one.
func TestOtherWitnesses(t *testing.T) {
	t.Parallel()
	r, j, _ := journaled(t)
	r.AdmitMany("buyer", 2)
	events := r.Events(r.Sale)
	if err := j.Leave(r.Ctx(), r.Store); err != nil {
		t.Fatal(err)
	}
	vanish(r, events[1])
	orders := []pipeline.OrderKey{
		{SaleID: r.Sale.ID, OrderID: events[0].OrderID},
		{SaleID: r.Sale.ID, OrderID: events[1].OrderID},
		{SaleID: r.Sale.ID, OrderID: uuid.Must(uuid.NewV7()).String()},
		{SaleID: "other", OrderID: uuid.Must(uuid.NewV7()).String()},
	}
	given := slices.Clone(orders)
	auditor := r.Auditor.With(audit.Witness{File: "a.journal", Orders: orders})
	for range 2 {
		report := mustAudit(r, auditor)
		if report.LostReceipts != 2 || len(report.Findings) != 2 ||
			!strings.Contains(report.Findings[1], "2 receipts") || !strings.Contains(report.Findings[1], "--apply a.journal") {
			t.Errorf("got %+v, want two receipts, of which the file has both", report)
		}
	}
	if !slices.Equal(orders, given) {
		t.Errorf("the witness was changed: got %+v, want %+v", orders, given)
	}
	if report := mustAudit(r, r.Auditor); report.LostReceipts != 1 {
		t.Errorf("got %+v, want the one that was reported", report)
	}
}

// Receipts that were too many to be listed are no finding, and no proof either.
func TestUncheckedReceipts(t *testing.T) {
	t.Parallel()
	r, _, _ := journaled(t)
	err := r.Store.ReportOverdue(r.Ctx(), journal.Overdue{JournalID: journals(t, r)[0], Host: "a", Unlisted: 7})
	if err != nil {
		t.Fatal(err)
	}
	report := mustAudit(r, r.Auditor)
	if !report.Clean() || report.UncheckedReceipts != 7 || len(report.Notes()) != 1 ||
		!strings.Contains(report.Notes()[0], "7 receipts") {
		t.Errorf("got %+v, want seven receipts that were not checked", report)
	}
}
