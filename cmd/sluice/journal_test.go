package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// The journal of a machine that is gone is listed, checked and replayed from its files.
func TestJournal(t *testing.T) {
	t.Parallel()
	shop := servers(t)
	sluice(t, shop, "sale", "create", "--id", "drop-1", "--stock", "10").mustFine(t)
	dir := t.TempDir()
	installation := uuid.NewString()
	j := journal.Open(journal.Options{Dir: dir, Installation: installation, AppendTimeout: time.Minute})
	at := pipeline.SalePartition{SaleID: "drop-1", Partition: pipeline.PlaceSale("drop-1", 16)[0]}
	accept := pipeline.Accept{Event: pipeline.Event{
		Partition: at.Partition, SaleID: at.SaleID, Sequence: 1, OrderID: uuid.Must(uuid.NewV7()).String(), Number: 7,
		UserID: "ann", Quantity: 1, AcceptedAt: time.Now().UTC(),
	}}
	if !j.Append(at, []pipeline.Accept{accept}) {
		t.Fatal("the journal is not on disk")
	}
	if out := sluice(t, shop, "journal", "ls", dir).mustFine(t); !strings.Contains(out, installation) ||
		!strings.Contains(out, "runs") {
		t.Errorf("ls: got\n%s", out)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, installation, "*", "*.journal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	if out := sluice(t, shop, "journal", "ls", dir).mustFine(t); !strings.Contains(out, "ended") {
		t.Errorf("ls of a process that has ended: got\n%s", out)
	}
	sluice(t, shop, "journal", "verify", files[0]).mustFine(t)
	if out := sluice(t, shop, "journal", "replay", files[0]).mustFine(t); !strings.Contains(out, "does not have 1") {
		t.Errorf("replay: got\n%s", out)
	}
	for range 2 { // the second time it has its slot, and takes nothing
		sluice(t, shop, "journal", "replay", "--apply", files[0]).mustFine(t)
		if out := sluice(t, shop, "sale", "show", "drop-1").mustFine(t); !strings.Contains(out, "9 of 10") {
			t.Errorf("after a replay: got\n%s\nwant 9 of 10 units left", out)
		}
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], data[:len(data)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sluice(t, shop, "journal", "verify", files[0]); got.code != 1 {
		t.Errorf("a torn file: got exit code %d, want 1\n%s", got.code, got.out)
	}
	if got := sluice(t, shop, "journal", "verify", "journal_test.go"); got.code != 2 {
		t.Errorf("a file that is no journal: got exit code %d, want 2\n%s", got.code, got.err)
	}
}
