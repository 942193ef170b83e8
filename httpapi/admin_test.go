package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/httpapi"
	"sluice/internal/view"
)

// saleChanges are the calls that change a sale, with a body that each takes.
var saleChanges = map[string]string{
	"restock": `{"add":5}`, "reschedule": `{"closes_at":"2030-01-01T00:00:00Z"}`, "pause": "", "resume": "{}", "close": "",
}

func TestAdminContractMatchesTheTableOfProblems(t *testing.T) {
	t.Parallel()
	c := loadDocument(t, httpapi.AdminContract)
	listed := c.doc.Components.Schemas["Code"].Value.Enum
	table := slices.Clone(httpapi.AdminProblems)
	for _, p := range httpapi.Problems {
		if slices.Contains(listed, any(string(p.Code))) {
			table = append(table, p)
		}
	}
	matchesProblems(t, c, table, "method-not-allowed", "headers-too-large", "not-found", "internal")
}

// TestEveryListedAdminAnswerIsGiven does for the admin side what TestEveryListedAnswerIsGiven does for the public one.
func TestEveryListedAdminAnswerIsGiven(t *testing.T) {
	t.Parallel()
	c := loadDocument(t, httpapi.AdminContract)
	r := newAdminRig(t, c, adminToken)
	giveLetters(r)
	giveRecords(r)
	giveSales(r)
	giveEndpoints(r)
	giveNobody(r)
	giveAway(r)
	for _, answer := range c.listed() {
		if !c.given[answer] {
			t.Errorf("never given: %s", answer)
		}
	}
}

func giveLetters(r *adminRig) {
	r.create(newSale("drop-1", 10))
	id := r.bury("s=drop-1", "u=ann", "q=1")
	r.expect(ask("GET", "dead-letters", ""), 200, "")
	r.expect(ask("GET", "dead-letters?limit=0&all=maybe", ""), 400, "invalid-request")
	r.expect(ask("GET", "dead-letters/"+id, ""), 200, "")
	r.expect(ask("GET", "dead-letters/99", ""), 404, "unknown-dead-letter")
	r.expect(ask("GET", "dead-letters/x", ""), 404, "unknown-dead-letter")
	key := r.keys.Sale(r.stored("drop-1").Partitions[0], "drop-1")
	must(r.t, r.rdb.Rename(r.t.Context(), key, key+":away").Err())
	r.expect(post("dead-letters/"+id+"/replay", ""), 503, "sale-not-loaded")
	must(r.t, r.rdb.Rename(r.t.Context(), key+":away", key).Err())
	replay, discard := "dead-letters/"+id+"/replay", "dead-letters/"+r.bury("s=drop-1")+"/discard"
	for _, path := range []string{replay, discard} {
		r.expect(post(path, `{"bogus":1}`), 400, "invalid-request")
		r.expect(post(path, strings.Repeat(" ", 70_000)), 413, "too-large")
		r.expect(post(path, "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
		r.expect(post(path, ""), 200, "")
		r.expect(post(path, ""), 409, "conflict")
	}
	r.expect(post("dead-letters/99/replay", ""), 404, "unknown-dead-letter")
	r.expect(post("dead-letters/99/discard", ""), 404, "unknown-dead-letter")
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
		r.expect(post("sales/drop-2/"+change, body).with("X-Actor", strings.Repeat("x", 129)), 400, "invalid-request")
	}
	r.expect(post("sales/drop-2/close", "").with("X-Actor", "a\x80"), 400, "invalid-request")
	r.create(newSale("lost", 7))
	must(r.t, r.rdb.Del(r.t.Context(), r.keys.Sale(r.stored("lost").Partitions[0], "lost")).Err())
	for _, change := range []string{"restock", "reschedule", "pause", "resume", "close"} {
		r.expect(post("sales/lost/"+change, saleChanges[change]), 503, "sale-not-loaded")
	}
	r.expect(post("sales/lost/repair", ""), 503, "sale-not-loaded")
	r.expect(post("sales/drop-2/close", ""), 200, "")
	drop := r.stored("drop-2")
	must(r.t, r.rdb.HIncrBy(r.t.Context(), r.keys.Sale(drop.Partitions[0], drop.ID), "stock", 1).Err())
	_, err := r.store.Exclusively(r.t.Context(), "verify", func(context.Context) error {
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

// each sends every operation of the contract, with ids of nothing.
func (r *adminRig) each(send func(call)) {
	for path, item := range r.contract.doc.Paths.Map() {
		for method := range item.Operations() {
			path := strings.NewReplacer("{id}", "1", "{sale}", "drop-1", "/admin/v1/", "").Replace(path)
			body := ""
			switch {
			case path == "sales" && method == http.MethodPost:
				body = `{"id":"drop-9","total":1}`
			case path == "endpoints" && method == http.MethodPost:
				body = `{"url":"https://example.com/x"}`
			case method == http.MethodPost:
				body = saleChanges[path[strings.LastIndexByte(path, '/')+1:]]
			}
			send(ask(method, path, body))
		}
	}
}

func giveNobody(r *adminRig) {
	r.each(func(c call) {
		r.expect(c.with("Authorization", ""), 401, "unauthenticated")
		r.expect(c.with("Authorization", "Bearer wrong"), 401, "unauthenticated")
	})
}

func giveAway(r *adminRig) {
	r.postgres.Cut()
	r.each(func(c call) {
		if c.path != "/admin/v1/openapi.json" {
			r.expect(c, 503, "store-unavailable")
		}
	})
	r.postgres.Heal()
}

func TestAdminToken(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer a-secre", "Bearer a-secrett", "Basic a-secret", "a-secret", "bearer  A-SECRET"} {
		got := r.expect(ask("GET", "sales", "").with("Authorization", value), 401, "unauthenticated")
		if got.header.Get("Www-Authenticate") == "" || strings.Contains(string(got.body), adminToken) {
			t.Errorf("%q: got %v %s, want a challenge and no secret", value, got.header, got.body)
		}
	}
	twice := ask("GET", "sales", "")
	twice.header["Authorization"] = append(twice.header["Authorization"], "Bearer x")
	r.expect(twice, 401, "unauthenticated")
	r.expect(ask("GET", "sales", "").with("Authorization", "bearer "+adminToken), 200, "")
	if got, _ := r.try(ask("GET", "nowhere", "").with("Authorization", "")); got.status != 401 { // it is no listed path
		t.Errorf("got %d for a path that is not there, want 401", got.status)
	}
	r.expect(ask("GET", "nowhere", ""), 404, "not-found")
	if got := r.expect(ask("DELETE", "sales", ""), 405, "method-not-allowed"); !strings.Contains(got.header.Get("Allow"), "POST") {
		t.Errorf("got Allow %q", got.header.Get("Allow"))
	}
	if strings.Contains(r.logs.String(), adminToken) {
		t.Error("the token is in the log")
	}

	unset := newAdminRig(t, nil, "")
	for _, value := range []string{"", "Bearer ", "Bearer x", "Bearer " + adminToken} {
		got := unset.expect(ask("POST", "sales", `{"id":"drop-1","total":1}`).with("Authorization", value), 401, "unauthenticated")
		if !strings.Contains(got.problem().Detail, "set ADMIN_TOKEN") {
			t.Errorf("got %s, want it to say what to set", got.body)
		}
	}
}

// TestProblemsOfTheAdminSideExplainThemselves: the type of a problem leads somewhere on the address that gave it, without a token.
func TestProblemsOfTheAdminSideExplainThemselves(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	for _, p := range httpapi.AdminProblems {
		response, err := r.client.Get("http://" + r.address + "/problems/" + string(p.Code))
		must(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", p.Code, response.StatusCode)
		}
	}
}

type letterList struct {
	DeadLetters []view.Letter `json:"dead_letters"`
	NextAfter   *string       `json:"next_after"`
}

// TestAdminDeadLetters is the life of dead letters over HTTP.
func TestAdminDeadLetters(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	first, second, third := r.bury("s=drop-1", "u=ann", "q=x"), r.bury("s=drop-2", "u=\xff"), r.bury("s=drop-1", "q=1")
	ids := func(query string) string {
		t.Helper()
		list := decode[letterList](t, r.expect(ask("GET", "dead-letters"+query, ""), 200, ""))
		var all []string
		for _, l := range list.DeadLetters {
			all = append(all, l.ID)
			if l.Payload != nil {
				t.Errorf("%s: a payload is in the list", query)
			}
		}
		if list.NextAfter != nil {
			all = append(all, "next", *list.NextAfter)
		}
		return strings.Join(all, " ")
	}
	for query, want := range map[string]string{
		"": first + " " + second + " " + third, "?sale=drop-1": first + " " + third, "?reason=refused": "",
		"?limit=1": first + " next " + first, "?limit=1&after=" + first: second + " next " + second, "?after=" + third: "",
		"?sale=%00%ff": "",
	} {
		if got := ids(query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	shown := decode[view.Letter](t, r.expect(ask("GET", "dead-letters/"+second, ""), 200, ""))
	if bytes, ok := shown.Payload["u"].(map[string]any); !ok || bytes["base64"] != "/w==" || shown.ResolvedAt != nil {
		t.Errorf("got %+v, want the bytes of u", shown)
	}

	for body, says := range map[string]string{
		"":                           `field q: "x"`,
		`{"set":{"k":"1"}}`:          "s, u, q, v",
		`{"set":{"q":1}}`:            "set.q: it must be a string",
		`{"set":{"q":null}}`:         "set.q: it must be a string",
		`{"set":{"q":"1","q":"2"}}`:  "q: it is there twice",
		`{"set":null}`:               "set: it must not be null",
		`{"set":[]}`:                 "set: it must be a JSON object",
		`{"Set":{}}`:                 "Set: this field is not known; use set",
		`{"set":{"q":"1"},"x":true}`: "x: this field is not known",
		`[]`:                         "body: it must be a JSON object",
		`{"set":{}} {}`:              "body: it is not valid JSON",
		"{\"set\":{\"u\":\"\xff\"}}": "body: it is not valid UTF-8",
	} {
		got := r.expect(post("dead-letters/"+first+"/replay", body), 400, "invalid-request")
		if !strings.Contains(got.problem().Detail, says) {
			t.Errorf("%s: got %q, want %q", body, got.problem().Detail, says)
		}
	}
	replayed := decode[view.Letter](t, r.expect(post("dead-letters/"+first+"/replay", `{"set":{"q":"2"}}`).with("X-Actor", "Zoë"), 200, ""))
	if replayed.Resolution == nil || *replayed.Resolution != "replayed" || replayed.ReplayOrderID == nil {
		t.Fatalf("got %+v, want it replayed", replayed)
	}
	mine := decode[receipt](t, r.public.expect(get("/v1/sales/drop-1/orders/mine", "ann"), 200, ""))
	if mine.OrderID != *replayed.ReplayOrderID || mine.Quantity != 2 {
		t.Errorf("got %+v, want the order %s", mine, *replayed.ReplayOrderID)
	}
	discarded := decode[view.Letter](t, r.expect(post("dead-letters/"+second+"/discard", `{"note":"not ours"}`), 200, ""))
	if discarded.Resolution == nil || *discarded.Resolution != "discarded" || discarded.Note != "not ours" {
		t.Errorf("got %+v, want it discarded", discarded)
	}
	got := r.expect(post("dead-letters/"+first+"/replay", ""), 409, "conflict")
	if !strings.Contains(got.problem().Detail, "was replayed at") || !strings.Contains(got.problem().Detail, mine.OrderID) {
		t.Errorf("got %q, want it to say when and how", got.problem().Detail)
	}
	if got := ids(""); got != third {
		t.Errorf("got %q waiting, want %q", got, third)
	}
	if got := ids("?all=true"); got != first+" "+second+" "+third {
		t.Errorf("got %q in all", got)
	}
	r.logged("sluice create drop-1; Zoë replay drop-1; admin-api discard drop-2")
}

// logged checks who did what, by the audit log.
func (r *adminRig) logged(want string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), answerLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.database)
	must(r.t, err)
	defer func() { must(r.t, conn.Close(context.WithoutCancel(ctx))) }()
	var got string
	must(r.t, conn.QueryRow(ctx, `select string_agg(actor || ' ' || action || ' ' || sale_id, '; ' order by id) from audit_log`).Scan(&got))
	if got != want {
		r.t.Errorf("the audit log says %q, want %q", got, want)
	}
}

// TestAdminSales is the life of a sale over HTTP, as buyers see it.
func TestAdminSales(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	opens := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	sale := decode[view.Sale](t, r.expect(post("sales", `{"id":"drop-1","title":"Lamp","total":10,"max_quantity":3,"opens_at":"`+opens+
		`","closes_at":"2030-01-01T00:00:00+01:00","payment_window_seconds":60}`), 201, ""))
	if sale.Title != "Lamp" || sale.Total != 10 || sale.MaxQuantity != 3 || sale.PaymentWindowSeconds != 60 || sale.Phase != "open" ||
		sale.ClosesAt != "2029-12-31T23:00:00.000Z" || sale.Remaining == nil || *sale.Remaining != 10 || sale.LoadedAt == nil || sale.Version != 1 {
		t.Errorf("created: got %+v", sale)
	}
	r.public.expect(order("drop-1", "ann", `{"quantity":3}`), 202, "")
	change := func(what, body string) view.Sale {
		t.Helper()
		after := decode[view.Sale](t, r.expect(post("sales/drop-1/"+what, body).with("X-Actor", "ann"), 200, ""))
		shown := decode[view.Sale](t, r.expect(ask("GET", "sales/drop-1", ""), 200, ""))
		if shown.Version != after.Version || *shown.Remaining != *after.Remaining {
			t.Errorf("%s: told %+v, shown %+v", what, after, shown)
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
		`{"id":"x","total":1,"stock":1}`:                                    "stock: this field is not known; use closes_at, currency, id",
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
	hash := r.keys.Sale(r.stored("drop-1").Partitions[0], "drop-1")
	must(t, r.rdb.HIncrBy(t.Context(), hash, "stock", 3).Err())
	repair := decode[view.Repair](t, r.expect(post("sales/drop-1/repair", ""), 200, ""))
	if repair.Applied || repair.Left != nil || repair.Found.Drift != -3 || len(repair.Rebuilt) != 1 || repair.Rebuilt[0].StockAfter != 11 {
		t.Errorf("got plan %+v, want three units taken out", repair)
	}
	repair = decode[view.Repair](t, r.expect(post("sales/drop-1/repair", `{"apply":true}`).with("X-Actor", "ann"), 200, ""))
	if !repair.Applied || repair.Left == nil || !repair.Left.Clean || repair.Left.Stock != 11 || repair.Left.Rebuilds != 1 || len(repair.Left.Notes) != 1 {
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
	r.logged("admin-api create drop-1; ann restock drop-1; ann pause drop-1; ann resume drop-1; ann reschedule drop-1; ann close drop-1; " +
		"ann repair drop-1; admin-api create drop-2")
}
