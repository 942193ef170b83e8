package archive_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/archive"
	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/retention"
)

func batch(number int64, users ...string) *retention.Batch {
	b := &retention.Batch{SaleID: "drop-1", Number: number}
	for _, user := range users {
		b.Orders = append(b.Orders, lifecycle.ListedOrder{
			Order:     pipeline.Order{ID: "id-" + user, SaleID: "drop-1", UserID: user, Quantity: 2, AcceptedAt: time.Now()},
			UnitPrice: 500, Currency: "EUR",
		})
	}
	return b
}

// lines reads a file of a directory; none where it is missing.
func lines(t *testing.T, path ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// A batch is a file for each kind of rows. One that comes again, with other rows, takes the place of the first.
func TestABatchThatComesAgainReplacesItself(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "not", "there", "yet")
	d, err := archive.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	first := batch(1, "ann", "bob", "cy")
	first.Payments = []payments.Payment{{ID: 7, Outcome: payments.Paid, Amount: 1000, Currency: "EUR"}}
	for _, b := range []*retention.Batch{first, batch(1, "ann", "bob"), batch(2, "<&>")} {
		if err := d.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	got := lines(t, root, "drop-1", "000001-orders.jsonl")
	var order view.Order
	if len(got) != 2 || json.Unmarshal([]byte(got[1]), &order) != nil || order.UserID != "bob" || *order.Amount != 1000 {
		t.Errorf("got %q", got)
	}
	if got := lines(t, root, "drop-1", "000002-orders.jsonl"); len(got) != 1 || !strings.Contains(got[0], "<&>") {
		t.Errorf("the next batch: got %q", got)
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(files) != 2 { // the second try had no payments
		t.Errorf("got %q, %v", files, err)
	}
}

// Rows of no sale have a place of their own, and what a process left that died does not matter. Each table has its own
// ids: the first of one may well be the first of another.
func TestRowsOfNoSale(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d, err := archive.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(root, "_other", "000007-audit-log.jsonl.partial")
	if err := os.MkdirAll(filepath.Dir(half), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half, []byte(strings.Repeat("x", 9999)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &retention.Batch{Number: 7, Log: []auditlog.Entry{{ID: 7, Actor: "ann", Action: "pause", Detail: []byte(`{}`)}}}
	if err := d.Write(b); err != nil {
		t.Fatal(err)
	}
	batch := retention.Batch{Number: 7, Payments: []payments.Payment{{ID: 7, Outcome: payments.Refused}}}
	if err := d.Write(&batch); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, root, "_other", "000007-audit-log.jsonl"); len(got) != 1 || !strings.Contains(got[0], `"pause"`) {
		t.Errorf("got %q", got)
	}
	if got := lines(t, root, "_other", "000007-payments.jsonl"); len(got) != 1 || !strings.Contains(got[0], `"refused"`) {
		t.Errorf("got %q", got)
	}
}

// A writer that stands still in the middle of a file harms none that another worker writes of the same batch.
func TestAWriterThatStandsStill(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d, err := archive.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "drop-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	stopped, err := archive.Begin(filepath.Join(root, "drop-1", "000001-orders.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(batch(1, "ann")); err != nil {
		t.Fatal(err)
	}
	if _, err := stopped.WriteString("of the batch that was not dropped"); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Close(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, root, "drop-1", "000001-orders.jsonl"); len(got) != 1 || !json.Valid([]byte(got[0])) {
		t.Errorf("got %q", got)
	}
}

// What can't be written is an error, before anything is dropped.
func TestADirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Open(filepath.Join(file, "below")); err == nil {
		t.Error("a directory below a file was opened")
	}
	root := t.TempDir()
	d, err := archive.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "drop-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(batch(1, "ann")); err == nil {
		t.Error("written into a file")
	}
}
