package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/internal/view"
)

// Orders are found by what an operator knows of them, page by page, and exported as files.
func TestOperatorFindsAndExportsOrders(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "10", "--price", "1999", "--currency", "EUR").mustFine(t)
	if out := sluice(t, at, "order", "ls").mustFine(t); !strings.Contains(out, "No such orders are stored") {
		t.Errorf("without orders: got %q", out)
	}
	rdb := testkit.Client(t, setting(at, "REDIS_URL"))
	var ids []string
	for _, buyer := range []string{"ann", "bob", "=1+1"} {
		ids = append(ids, accept(t, at, rdb, buyer))
	}
	stop := startWorker(t, at)
	defer stop()
	list := func(more ...string) view.OrderPage {
		t.Helper()
		return decoded[view.OrderPage](t, sluice(t, at, append([]string{"order", "ls", "--json"}, more...)...).mustFine(t))
	}
	testkit.Eventually(t, time.Minute, "the orders to be stored", func() bool { return len(list().Orders) == 3 })
	if got := list("--buyer", "bob"); len(got.Orders) != 1 || got.Orders[0].OrderID != ids[1] || *got.Orders[0].Amount != 1999 {
		t.Errorf("by buyer: got %+v", got)
	}
	number := list("--order", ids[0]).Orders[0].OrderNumber
	out := sluice(t, at, "order", "search", "--number", number).mustFine(t)
	if !strings.Contains(out, ids[0]) || !strings.Contains(out, "19.99 EUR") || strings.Contains(out, ids[1]) {
		t.Errorf("by number: got %q", out)
	}
	page := list("--sale", "drop-1", "--limit", "2", "--since", "1h")
	if len(page.Orders) != 2 || page.NextAfter == nil {
		t.Fatalf("a page: got %+v", page)
	}
	if out := sluice(t, at, "order", "ls", "--limit", "2").mustFine(t); !strings.Contains(out, "--after ") {
		t.Errorf("a page as a table: got %q", out)
	}
	if rest := list("--sale", "drop-1", "--after", *page.NextAfter); len(rest.Orders) != 1 || rest.NextAfter != nil ||
		rest.Orders[0].OrderID != ids[0] {
		t.Errorf("the rest: got %+v", rest)
	}

	lines := sluice(t, at, "order", "export", "--format", "jsonl").mustFine(t)
	if strings.Count(lines, "\n") != 3 || !strings.Contains(lines, `"user_id":"=1+1"`) {
		t.Errorf("JSON lines: got %q", lines)
	}
	file := filepath.Join(t.TempDir(), "orders.csv")
	if out := sluice(t, at, "order", "export", "--output", file).mustFine(t); !strings.Contains(out, "3 orders are in") {
		t.Errorf("a file: got %q", out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][3] != "'=1+1" {
		t.Errorf("the file: got %v, %v", rows, err)
	}
	sluice(t, at, "order", "export", "--output", file).mustRefuse(t, 2, "exists")
	sluice(t, at, "order", "export", "--buyer", "").mustRefuse(t, 2, "--buyer is empty")
	sluice(t, at, "order", "ls", "--sale=").mustRefuse(t, 2, "--sale is empty")
}

// An export that breaks off says so by its exit code and its last line, and leaves no file.
func TestABrokenExportShows(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "1000000", "--payment-window", "0").mustFine(t)
	execSQL(t, at, `
		insert into orders (sale_id, id, number, user_id, quantity, partition, sequence, accepted_at, status)
		select 'drop-1', gen_random_uuid(), i, 'u' || i, 1, 1, i, now() - i * interval '1ms', 'confirmed'
		from generate_series(1, 300000) i`)
	proxy, err := faultnet.Listen(setting(at, "DATABASE_URL"))
	must(t, err)
	defer func() { must(t, proxy.Close()) }()
	through := []string{"DATABASE_URL=" + proxy.URL()}

	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := program(ctx, through, "order", "export")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1000)) // and no more, so that it waits for its reader
	must(t, err)
	proxy.Cut()
	rest, err := io.ReadAll(out)
	must(t, err)
	_ = cmd.Wait() // the exit code says it
	lines := strings.Split(strings.TrimSpace(string(rest)), "\n")
	if last := lines[len(lines)-1]; cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(last, "INCOMPLETE,") ||
		!strings.Contains(errOut.String(), "broken off after") {
		t.Errorf("got exit code %d, last line %q and %q", cmd.ProcessState.ExitCode(), last, errOut.String())
	}

	proxy.Heal()
	file := filepath.Join(t.TempDir(), "orders.csv")
	cmd = program(ctx, through, "order", "export", "--output", file)
	must(t, cmd.Start())
	testkit.Eventually(t, time.Minute, "the export to begin", func() bool {
		begun, err := os.Stat(file + ".partial")
		return err == nil && begun.Size() > 0
	})
	proxy.Cut()
	_ = cmd.Wait()
	left, err := filepath.Glob(file + "*")
	if cmd.ProcessState.ExitCode() != 1 || err != nil || len(left) != 0 {
		t.Errorf("got exit code %d and %v, want 1 and no file", cmd.ProcessState.ExitCode(), left)
	}
}

// execSQL runs a statement in a test's database.
func execSQL(t *testing.T, at []string, statement string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, setting(at, "DATABASE_URL"))
	must(t, err)
	defer func() { _ = conn.Close(ctx) }() // nothing is lost
	_, err = conn.Exec(ctx, statement, args...)
	must(t, err)
}
