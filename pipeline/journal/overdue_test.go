package journal_test

import (
	"os"
	"testing"
	"time"

	"sluice/pipeline/admission"
	"sluice/pipeline/audit"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
)

// impatient is a rig whose admission has a journal that reports what Postgres does not have at once.
func impatient(t *testing.T, dir string) (*pipelinetest.Rig, *journal.Journal) {
	t.Helper()
	j := journal.Open(journal.Options{
		Dir: dir, Installation: installation, AppendTimeout: time.Minute, OverdueAfter: time.Nanosecond,
	})
	t.Cleanup(func() { _ = j.Close() })
	r := pipelinetest.New(t, pipelinetest.Options{Admission: admission.Options{Journal: j}})
	if err := j.Announce(t.Context(), r.Store); err != nil {
		t.Fatal(err)
	}
	return r, j
}

// wantReports trims a journal and compares what Postgres has of all journals then.
func wantReports(r *pipelinetest.Rig, j *journal.Journal, reports, listed int, unlisted int64) []audit.Witness {
	r.Helper()
	if err := j.Trim(r.Ctx(), r.Store); err != nil {
		r.Fatal(err)
	}
	witnesses, err := r.Store.Witnesses(r.Ctx(), r.Sale.ID)
	if err != nil {
		r.Fatal(err)
	}
	host, _ := os.Hostname()
	orders, more := 0, int64(0)
	for _, w := range witnesses {
		orders, more = orders+len(w.Orders), more+w.Unlisted
		if w.Host != host {
			r.Errorf("got host %q, want %q", w.Host, host)
		}
	}
	if len(witnesses) != reports || orders != listed || more != unlisted {
		r.Fatalf("got %d reports of %d orders and %d more, want %d of %d and %d",
			len(witnesses), orders, more, reports, listed, unlisted)
	}
	return witnesses
}

// What Postgres should have is reported, and withdrawn as it gets it. What may still be appended to, or is young, is
// not: on a usual day nothing is written.
func TestOverdueAcceptsAreReported(t *testing.T) {
	t.Parallel()
	r, j := impatient(t, t.TempDir())
	r.AdmitMany("ann", 20)
	wantReports(r, j, 0, 0, 0)
	j.EndSegment()
	wantReports(r, j, 1, 20, 0)
	events := r.Events(r.Sale)
	r.Persist(events[:19]...)
	if got := wantReports(r, j, 1, 1, 0); got[0].Orders[0].OrderID != events[19].OrderID {
		t.Errorf("got %+v, want order %s", got, events[19].OrderID)
	}
	r.WorkAll()
	wantReports(r, j, 0, 0, 0)
	if len(j.Files()) != 0 {
		t.Errorf("files %q are left", j.Files())
	}

	patient, own := journaled(t, t.TempDir())
	patient.AdmitMany("bob", 20)
	own.EndSegment()
	wantReports(patient, own, 0, 0, 0)
}

// A process that ends reports all that it leaves; the one that takes it over goes on with the report, until nothing is
// left and the journal is forgotten.
func TestReportsOutliveTheirProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, first := journaled(t, dir)
	r.AdmitMany("ann", 20)
	if err := first.Leave(t.Context(), r.Store); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir) // not impatient: what it takes over is old enough
	left, err := r.Store.Witnesses(t.Context(), r.Sale.ID)
	if err != nil || len(left) != 1 || len(left[0].Orders) != 20 {
		t.Fatalf("left: got %+v, %v, want a report of 20 orders", left, err)
	}
	if err := j.Announce(t.Context(), r.Store); err != nil {
		t.Fatal(err)
	}
	r.Persist(r.Events(r.Sale)[:5]...)
	if got := wantReports(r, j, 1, 15, 0); got[0].JournalID != left[0].JournalID {
		t.Errorf("got the report of %s, want that of %s", got[0].JournalID, left[0].JournalID)
	}
	r.WorkAll()
	wantReports(r, j, 0, 0, 0)
	if announced(r) != 1 {
		t.Errorf("%d journals are announced, want the own one", announced(r))
	}
}

// A report lists a bounded number of orders, and counts the others; and however many are missing, what is settled is
// deleted.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	r, j := impatient(t, t.TempDir())
	mustAppend(t, j, accepts(journal.OverdueLimit+500))
	j.EndSegment()
	r.AdmitMany("ann", 20)
	j.EndSegment()
	mustAppend(t, j, accepts(2500))
	j.EndSegment()
	wantReports(r, j, 1, journal.OverdueLimit, 500+20+2500)
	r.WorkAll()
	wantReports(r, j, 1, journal.OverdueLimit, 500+2500)
	if len(j.Files()) != 2 {
		t.Errorf("got files %q, want the two with orders that are missing", j.Files())
	}
}

// What the disk did not take is reported, too.
func TestWhatIsInMemoryOnlyIsReported(t *testing.T) {
	t.Parallel()
	r, j := impatient(t, "")
	r.AdmitMany("ann", 20)
	wantReports(r, j, 1, 20, 0)
	r.Persist(r.Events(r.Sale)[5:]...)
	wantReports(r, j, 1, 5, 0)
	r.WorkAll()
	wantReports(r, j, 0, 0, 0)
}
