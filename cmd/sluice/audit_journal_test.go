package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/db"
	"sluice/internal/testkit"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// leftJournal is the journal of an api that has ended and had given receipts for one order in each of some sales, which
// neither store has. It returns its only file.
func leftJournal(t *testing.T, shop []string, sales ...string) (file string) {
	t.Helper()
	store, err := db.Open(t.Context(), setting(shop, "DATABASE_URL"), db.Options{})
	must(t, err)
	defer store.Close()
	dir := t.TempDir()
	j := journal.Open(journal.Options{Dir: dir, Installation: uuid.NewString(), AppendTimeout: time.Minute})
	must(t, j.Announce(t.Context(), store))
	for _, sale := range sales {
		at := pipeline.SalePartition{SaleID: sale, Partition: pipeline.PlaceSale(sale, 16)[0]}
		accept := pipeline.Accept{Event: pipeline.Event{
			Partition: at.Partition, SaleID: sale, Sequence: 1, OrderID: uuid.Must(uuid.NewV7()).String(), Number: 7,
			UserID: "ann", Quantity: 1, AcceptedAt: time.Now().UTC(),
		}}
		if !j.Append(at, []pipeline.Accept{accept}) {
			t.Fatal("the journal is not on disk")
		}
	}
	must(t, j.Leave(t.Context(), store))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*.journal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	return files[0]
}

// wantLost wants an audit to find receipts that neither store has, and to name where they are.
func wantLost(t *testing.T, shop []string, receipts int64, says string, args ...string) {
	t.Helper()
	args = append([]string{"audit"}, args...)
	if got := sluice(t, shop, args...); got.code != 1 || !strings.Contains(got.out, "✗") ||
		!strings.Contains(got.out, says) {
		t.Errorf("%q: got %+v, want a finding that says %q", args, got, says)
	}
	var found int64
	for _, v := range decoded[[]view.Audit](t, sluice(t, shop, append(args, "--json")...).out) {
		found += v.LostReceipts
	}
	if found != receipts {
		t.Errorf("%q: got %d receipts that are lost, want %d", args, found, receipts)
	}
}

// An audit finds the receipt that only an api's journal knows of, until what it says was done.
func TestAuditBelievesWhatApisReport(t *testing.T) {
	t.Parallel()
	shop := servers(t)
	sluice(t, shop, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	file := leftJournal(t, shop, "drop-1")
	wantLost(t, shop, 1, "the accept journal "+filepath.Base(filepath.Dir(file))+" on ")
	sluice(t, shop, "journal", "replay", "--apply", file).mustFine(t)
	if out := sluice(t, shop, "audit").mustFine(t); !strings.Contains(out, "✓") {
		t.Errorf("after a replay: got\n%s", out)
	}
}

// The files of a machine that is gone are believed, too.
func TestAuditBelievesFiles(t *testing.T) {
	t.Parallel()
	shop := servers(t)
	sluice(t, shop, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	rdb := testkit.Client(t, setting(shop, "REDIS_URL"))
	file := leftJournal(t, servers(t), "drop-1") // reported to nobody here
	accept(t, shop, rdb, "bob")
	sluice(t, shop, "audit").mustFine(t)
	wantLost(t, shop, 1, "--apply "+file, "--journal", file)
	second := leftJournal(t, servers(t), "drop-1", "drop-2")
	wantLost(t, shop, 3, "does not know the sale", "--journal", file, second)
	wantLost(t, shop, 2, "--apply "+second, "--sale", "drop-1", "--journal", file, "--journal", second)

	data, err := os.ReadFile(second)
	must(t, err)
	must(t, os.WriteFile(second, data[:len(data)-1], 0o600))
	wantLost(t, shop, 1, second+" are torn", "--journal", second)
	for _, unreadable := range []string{"nowhere.journal", t.TempDir(), "journal_test.go"} {
		sluice(t, shop, "audit", "--journal", unreadable).mustRefuse(t, 2, unreadable)
	}
	sluice(t, shop, "audit", "--repair", "--journal", file).mustRefuse(t, 2, "--repair")
	sluice(t, shop, "audit", "drop-1").mustRefuse(t, 2, "drop-1", "--sale")
	sluice(t, shop, "journal", "replay", "--apply", file).mustFine(t)
	sluice(t, shop, "audit", "--journal", file).mustFine(t)
}

// Postgres was restored to before a sale was made: what its api has reported of it is a finding.
func TestAuditBelievesReportsOfUnknownSales(t *testing.T) {
	t.Parallel()
	shop := servers(t)
	sluice(t, shop, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	leftJournal(t, shop, "drop-2", "drop-2")
	if got := sluice(t, shop, "audit"); got.code != 1 || !strings.Contains(got.out, "2 receipts") {
		t.Errorf("got exit code %d, want 1, and the receipts of drop-2\n%s", got.code, got.out)
	}
}
