package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

func TestLifeOfASale(t *testing.T) {
	t.Parallel()
	at := servers(t)
	if out := sluice(t, at, "sale", "list").mustFine(t); !strings.Contains(out, "No sales") {
		t.Errorf("got %q, want no sales", out)
	}
	out := sluice(t, at, "sale", "create", "--id", "drop-1", "--title", "Turnschuh Größe 42", "--stock", "1000",
		"--max-quantity", "2", "--opens", "now", "--closes", "+1h", "--payment-window", "15m",
		"--waitlist", "300").mustFine(t)
	if !strings.Contains(out, "drop-1 is created") || !strings.Contains(out, "1,000 in stock") ||
		!strings.Contains(out, "0 waiting, of at most 300") {
		t.Errorf("got %q, want the new sale", out)
	}
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "7").mustRefuse(t, 2, "drop-1 exists", "another --id")

	sale := show(t, at)
	want := view.Sale{
		ID: "drop-1", Title: "Turnschuh Größe 42", State: "active", Phase: "open", Total: 1000, MaxQuantity: 2,
		PaymentWindowSeconds: 900, Version: 1, Waitlist: 300,
	}
	got := sale
	got.Remaining, got.OpensAt, got.ClosesAt, got.LoadedAt = nil, "", "", nil
	got.CreatedAt, got.UpdatedAt, got.Partitions = "", "", nil
	if got.ID != want.ID || got.Title != want.Title || got.State != want.State || got.Phase != want.Phase ||
		got.Total != want.Total ||
		got.MaxQuantity != want.MaxQuantity || got.PaymentWindowSeconds != want.PaymentWindowSeconds ||
		got.Version != want.Version ||
		got.Waitlist != want.Waitlist {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if sale.Remaining == nil || *sale.Remaining != 1000 || len(sale.Partitions) != 1 || !sale.Partitions[0].Loaded ||
		sale.LoadedAt == nil {
		t.Errorf("the sale is not loaded: %+v", sale)
	}
	if d := window(t, sale); d != time.Hour {
		t.Errorf("the window is %s, want 1h", d)
	}

	sluice(t, at, "sale", "restock", "drop-1", "--add", "500").mustFine(t)
	if sale = show(t, at); sale.Total != 1500 || *sale.Remaining != 1500 || sale.Version != 2 {
		t.Errorf("after the restock: %+v", sale)
	}
	sluice(t, at, "sale", "restock", "drop-1", "--add", "2147483648").mustRefuse(t, 2, "stock 2147485148")
	sluice(t, at, "sale", "reschedule", "drop-1", "--opens", "+1h", "--closes", "+3h").mustFine(t)
	if sale = show(t, at); sale.Phase != "scheduled" || window(t, sale) != 2*time.Hour {
		t.Errorf("after the reschedule: %+v", sale)
	}
	sluice(t, at, "sale", "reschedule", "drop-1", "--closes", "+30m").mustRefuse(t, 2, "not after it opens")
	sluice(t, at, "sale", "reschedule", "drop-1", "--opens", "now").mustFine(t)
	for _, step := range []struct{ command, phase, inRedis string }{
		{"pause", "paused", "paused"}, {"resume", "open", "active"}, {"close", "closed", "closed"},
	} {
		sluice(t, at, "sale", step.command, "drop-1").mustFine(t)
		if sale = show(t, at); sale.Phase != step.phase || sale.Partitions[0].State != step.inRedis {
			t.Errorf("after %s: %+v", step.command, sale)
		}
	}
	sluice(t, at, "sale", "resume", "drop-1").mustRefuse(t, 2, "closed", "final")
	logged(t, at, "create restock reschedule reschedule pause resume close")
}

func TestUnknownSale(t *testing.T) {
	t.Parallel()
	at := servers(t)
	for _, args := range [][]string{
		{"sale", "show", "nope"},
		{"sale", "pause", "nope"},
		{"sale", "restock", "nope", "--add", "1"},
		{
			"audit",
			"--sale", "nope",
		},
		{"sale", "show", "No/Such {Id}"},
		{"order", "show", "nope", "018f0000-0000-7000-8000-000000000000"},
	} {
		sluice(t, at, args...).mustRefuse(t, 2, "no s", "sluice sale ls")
	}
}

// Looking at an empty installation must not fix its partitions; the first sale does.
func TestPartitionsAreFixedByTheFirstSale(t *testing.T) {
	t.Parallel()
	at := servers(t)
	sluice(t, at, "sale", "list").mustFine(t)
	sluice(t, at, "stream").mustFine(t)
	sluice(t, at, "sale", "create", "--id", "drop-1", "--stock", "5", "--partitions", "4").mustFine(t)
	if views := decoded[[]streamView](t, sluice(t, at, "stream", "--json").mustFine(t)); len(views) != 4 {
		t.Errorf("got %d partitions, want the 4 that the installation has", len(views))
	}
	sluice(t, append(at, "PARTITIONS=16"), "stream").mustRefuse(t, 2, "PARTITIONS is 16", "made with 4")
}

// A database that was never migrated is reported with the remedy, which works.
func TestMigrate(t *testing.T) {
	t.Parallel()
	at := []string{"DATABASE_URL=" + testkit.EmptyDatabase(t)}
	withRedis := append(at, "REDIS_URL="+testkit.PrivateRedis(t).URL())
	sluice(t, withRedis, "sale", "list").mustRefuse(t, 1, "sluice migrate")
	if out := sluice(t, at, "migrate").mustFine(t); !strings.Contains(out, "from schema version 0 to") {
		t.Errorf("got %q, want the versions", out)
	}
	if out := sluice(t, at, "migrate").mustFine(t); !strings.Contains(out, "already") {
		t.Errorf("got %q, want that nothing was to do", out)
	}
	sluice(t, withRedis, "sale", "list").mustFine(t)
}

func show(t *testing.T, at []string) saleView {
	t.Helper()
	return decoded[saleView](t, sluice(t, at, "sale", "show", "drop-1", "--json").mustFine(t))
}

func window(t *testing.T, v saleView) time.Duration {
	t.Helper()
	opens, err := time.Parse(time.RFC3339, v.OpensAt)
	must(t, err)
	closes, err := time.Parse(time.RFC3339, v.ClosesAt)
	must(t, err)
	return closes.Sub(opens)
}

// logged checks what the audit log says was done, and that it says by whom.
func logged(t *testing.T, at []string, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, setting(at, "DATABASE_URL"))
	must(t, err)
	defer func() { _ = conn.Close(ctx) }() // nothing is lost
	var got string
	var anonymous int
	if err := conn.QueryRow(ctx,
		`select string_agg(action, ' ' order by id), count(*) filter (where actor not like 'cli:%') from audit_log`).
		Scan(&got, &anonymous); err != nil {
		t.Fatal(err)
	}
	if got != want || anonymous != 0 {
		t.Errorf("the audit log says %q (%d of nobody), want %q", got, anonymous, want)
	}
}
