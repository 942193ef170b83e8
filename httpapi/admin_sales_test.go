package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/journal"
)

// saleChanges are the calls that change a sale, with a body that each takes.
var saleChanges = map[string]string{
	"restock": `{"add":5}`, "reschedule": `{"closes_at":"2030-01-01T00:00:00Z"}`, "pause": "", "resume": "{}", "close": "",
}

// giveSaleThatIsOver asks for the audit of a sale that is over and gone from Redis.
func giveSaleThatIsOver(r *adminRig) {
	sale := newSale("over", 7)
	sale.OpensAt, sale.ClosesAt = time.Now().Add(-9*24*time.Hour), time.Now().Add(-8*24*time.Hour)
	r.create(sale)
	must(r.t, r.rdb.Del(r.t.Context(), r.keys.Sale(r.stored("over").Partitions[0], "over")).Err())
	got := decode[view.Audit](r.t, r.expect(ask("GET", "sales/over/audit", ""), 200, ""))
	if !got.Clean || !got.Exact || !got.PostgresAlone || got.Stock != 7 {
		r.t.Errorf("got audit %+v, want it clean by Postgres alone", got)
	}
}

func giveSales(r *adminRig) {
	created := r.expect(post("sales", `{"id":"drop-2","total":7}`), 201, "")
	if got := created.header.Get("Location"); got != "/admin/v1/sales/drop-2" {
		r.t.Errorf("got Location %q", got)
	}
	r.expect(post("sales", `{"id":"drop-2","total":7}`), 409, "conflict")
	r.expect(post("sales", `{"total":7}`), 400, "invalid-request")
	r.expect(post("sales", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(post("sales", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	r.expect(ask("GET", "sales", ""), 200, "")
	r.expect(ask("GET", "sales?limit=101", ""), 400, "invalid-request")
	r.expect(ask("GET", "sales/drop-2", ""), 200, "")
	r.expect(ask("GET", "sales/drop-2/audit", ""), 200, "")
	r.expect(ask("GET", "sales/none", ""), 404, "unknown-sale")
	r.expect(ask("GET", "sales/none/audit", ""), 404, "unknown-sale")
	r.expect(post("sales/drop-2/repair", ""), 200, "")
	r.expect(post("sales/drop-2/repair", `{"apply":1}`), 400, "invalid-request")
	r.expect(post("sales/none/repair", `{"apply":true}`), 404, "unknown-sale")
	r.expect(post("sales/drop-2/repair", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(post("sales/drop-2/repair", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	for change, body := range saleChanges {
		if change == "close" {
			continue
		}
		r.expect(post("sales/drop-2/"+change, body), 200, "")
		r.expect(post("sales/drop-2/"+change, body).with("X-Reason", strings.Repeat("x", 1001)), 400, "invalid-request")
	}
	r.expect(post("sales/drop-2/close", "").with("X-Reason", "a\x80"), 400, "invalid-request")
	r.create(newSale("lost", 7))
	must(r.t, r.rdb.Del(r.t.Context(), r.keys.Sale(r.stored("lost").Partitions[0], "lost")).Err())
	for _, change := range []string{"restock", "reschedule", "pause", "resume", "close"} {
		r.expect(post("sales/lost/"+change, saleChanges[change]), 503, "sale-not-loaded")
	}
	r.expect(post("sales/lost/repair", ""), 503, "sale-not-loaded")
	giveSaleThatIsOver(r)
	giveEdits(r)
	r.expect(post("sales/drop-2/close", ""), 200, "")
	drop := r.stored("drop-2")
	must(r.t, r.rdb.HIncrBy(r.t.Context(), r.keys.Sale(drop.Partitions[0], drop.ID), "stock", 1).Err())
	_, err := r.store.RunExclusively(r.t.Context(), "verify", func(context.Context) error {
		r.expect(post("sales/drop-2/repair", `{"apply":true}`), 409, "conflict")
		return nil
	})
	must(r.t, err)
	for change, body := range saleChanges {
		path := "sales/drop-2/" + change
		r.expect(post(path, body), 409, "conflict")
		r.expect(post(path, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post(path, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
		r.expect(post("sales/none/"+change, body), 404, "unknown-sale")
	}
	r.expect(ask("GET", "openapi.json", ""), 200, "")
}

// TestAdminSales is the life of a sale over HTTP, as buyers see it.
func TestAdminSales(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	opens := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	sale := decode[view.Sale](t,
		r.expect(post("sales", `{"id":"drop-1","title":"Lamp","total":10,"max_quantity":3,"opens_at":"`+opens+
			`","closes_at":"2030-01-01T00:00:00+01:00","payment_window_seconds":60}`), 201, ""))
	if sale.Title != "Lamp" || sale.Total != 10 || sale.MaxQuantity != 3 || sale.PaymentWindowSeconds != 60 ||
		sale.Phase != "open" ||
		sale.ClosesAt != "2029-12-31T23:00:00.000Z" || sale.Remaining == nil || *sale.Remaining != 10 ||
		sale.LoadedAt == nil || sale.Version != 1 {
		t.Errorf("created: got %+v", sale)
	}
	r.public.expect(order("drop-1", "ann", `{"quantity":3}`), 202, "")
	change := func(what, body string) view.Sale {
		t.Helper()
		after := decode[view.Sale](t, r.expect(post("sales/drop-1/"+what, body).with("Authorization", r.as("ann")), 200, ""))
		shown := decode[view.Sale](t, r.expect(ask("GET", "sales/drop-1", ""), 200, ""))
		if shown.Version != after.Version || *shown.Remaining != *after.Remaining {
			t.Errorf("%s: answered %+v, shown %+v", what, after, shown)
		}
		return after
	}
	if got := change("restock", `{"add":5}`); got.Total != 15 || *got.Remaining != 12 || got.Version != 2 {
		t.Errorf("restocked: got %+v", got)
	}
	if got := change("pause", ""); got.State != "paused" {
		t.Errorf("paused: got %+v", got)
	}
	r.public.expect(order("drop-1", "bob", ""), 409, "sale-paused")
	if got := change("resume", ""); got.State != "active" {
		t.Errorf("resumed: got %+v", got)
	}
	r.public.expect(order("drop-1", "bob", ""), 202, "")
	if got := change("reschedule", `{"opens_at":"2029-01-01T00:00:00Z"}`); got.Phase != "scheduled" {
		t.Errorf("rescheduled: got %+v", got)
	}
	if got := change("close", ""); got.State != "closed" {
		t.Errorf("closed: got %+v", got)
	}
	for body, says := range map[string]string{
		`{}`: "2 fields break a rule", `{"id":"X","total":1}`: "sale id", `{"id":"x","total":0}`: "stock 0",
		`{"id":"x","total":1.5}`: "total: it must be an integer", `{"id":1,"total":1}`: "id: it must be a string",
		`{"id":"x","total":1,"opens_at":"tomorrow"}`:                        "opens_at: it must be a time",
		`{"id":"x","total":1,"opens_at":5}`:                                 "opens_at: it must be a time",
		`{"id":"x","total":1,"payment_window_seconds":9223372036854775807}`: "payment_window_seconds: it must be from 0",
		`{"id":"x","total":1,"closes_at":"2020-01-01T00:00:00Z"}`:           "not after it opens",
		`{"id":"x","total":1,"stock":1}`:                                    "stock: this field is not known; use closes_at, currency, entry_spread_seconds, entry_ticket, group_limit, id",
	} {
		if got := r.expect(post("sales", body), 400, "invalid-request"); !strings.Contains(got.problem().Detail, says) {
			t.Errorf("%s: got %q, want %q", body, got.problem().Detail, says)
		}
	}
	for path, body := range map[string]string{"restock": `{"add":0}`, "reschedule": `{}`, "pause": `{"for":"ever"}`} {
		r.expect(post("sales/drop-1/"+path, body), 400, "invalid-request")
	}
	audit := decode[view.Audit](t, r.expect(ask("GET", "sales/drop-1/audit", ""), 200, ""))
	if !audit.Clean || !audit.Exact || audit.Total != 15 || audit.InFlight != 4 || audit.Stock != 11 {
		t.Errorf("got audit %+v, want 4 units in flight", audit)
	}
	journalID := uuid.NewString()
	must(t, r.store.TouchJournals(t.Context(), []string{journalID}, "a"))
	must(t, r.store.ReportOverdue(t.Context(), journal.Overdue{
		JournalID: journalID, Orders: []pipeline.OrderKey{{SaleID: "drop-1", OrderID: uuid.NewString()}},
	}))
	audit = decode[view.Audit](t, r.expect(ask("GET", "sales/drop-1/audit", ""), 200, ""))
	if audit.Clean || audit.LostReceipts != 1 {
		t.Errorf("got audit %+v, want one receipt that is lost", audit)
	}
	must(t, r.store.ForgetJournals(t.Context(), []string{journalID}))
	hash := r.keys.Sale(r.stored("drop-1").Partitions[0], "drop-1")
	must(t, r.rdb.HIncrBy(t.Context(), hash, "stock", 3).Err())
	repair := decode[view.Repair](t, r.expect(post("sales/drop-1/repair", ""), 200, ""))
	if repair.Applied || repair.Left != nil || repair.Found.Drift != -3 || len(repair.Rebuilt) != 1 ||
		repair.Rebuilt[0].StockAfter != 11 {
		t.Errorf("got plan %+v, want three units taken out", repair)
	}
	repair = decode[view.Repair](t,
		r.expect(post("sales/drop-1/repair", `{"apply":true}`).with("Authorization", r.as("ann")), 200, ""))
	if !repair.Applied || repair.Left == nil || !repair.Left.Clean || repair.Left.Stock != 11 ||
		repair.Left.Rebuilds != 1 || len(repair.Left.Notes) != 1 {
		t.Errorf("got repair %+v, want it done", repair)
	}
	must(t, r.rdb.Del(t.Context(), hash).Err())
	r.expect(post("sales/drop-1/repair", `{"apply":true}`), 503, "sale-not-loaded")
	audit = decode[view.Audit](t, r.expect(ask("GET", "sales/drop-1/audit", ""), 200, ""))
	if audit.Clean || len(audit.Findings) != 1 {
		t.Errorf("got audit %+v, want that Redis has lost the sale", audit)
	}
	r.expect(post("sales", `{"id":"drop-2","total":1}`), 201, "")
	type list struct {
		Sales     []view.Sale
		NextAfter *string `json:"next_after"`
	}
	page := decode[list](t, r.expect(ask("GET", "sales?limit=1", ""), 200, ""))
	if len(page.Sales) != 1 || page.Sales[0].ID != "drop-1" || page.Sales[0].Remaining != nil || page.NextAfter == nil {
		t.Fatalf("got page %+v", page)
	}
	page = decode[list](t, r.expect(ask("GET", "sales?after="+*page.NextAfter, ""), 200, ""))
	if len(page.Sales) != 1 || page.Sales[0].ID != "drop-2" || page.NextAfter != nil {
		t.Errorf("got page %+v", page)
	}
	r.expect(ask("GET", "sales?after=%00", ""), 400, "invalid-request")
	r.logged("bootstrap create drop-1; token:ann restock drop-1; token:ann pause drop-1; token:ann resume drop-1; token:ann reschedule drop-1; token:ann close drop-1; " +
		"token:ann repair drop-1; bootstrap create drop-2")
}
