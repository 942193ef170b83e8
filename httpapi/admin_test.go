package httpapi_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/httpapi"
	"sluice/pipeline/operator"
)

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
	giveMoney(r)
	giveOrderList(r)
	giveLog(r)
	giveEndpoints(r)
	giveKeys(r)
	giveNobody(r)
	giveLesser(r)
	giveOpen(r)
	giveAway(r)
	giveGuesser(newAdminRig(t, c, adminToken))
	for _, answer := range c.listed() {
		if !c.given[answer] {
			t.Errorf("never given: %s", answer)
		}
	}
}

// each sends every operation of the contract, with ids of nothing. The role is the one that the contract names.
func (r *adminRig) each(send func(c call, needed operator.Role)) {
	for path, item := range r.contract.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Security != nil && len(*op.Security) == 0 {
				continue // open to all; giveOpen
			}
			path := strings.NewReplacer("{id}", "1", "{sale}", "drop-1", "/admin/v1/", "",
				"{order}", "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f").Replace(path)
			body := ""
			switch {
			case path == "sales" && method == http.MethodPost:
				body = `{"id":"drop-9","total":1}`
			case strings.HasPrefix(path, "endpoints/1/re"): // resend, replay
				body = `{"from":1}`
			case path == "erasures" && method == http.MethodPost:
				body = `{"user_id":"nobody-here"}`
			case path == "endpoints" && method == http.MethodPost:
				body = `{"url":"https://example.com/x"}`
			case method == http.MethodPatch:
				body = `{"title":"Lamp"}`
			case strings.HasSuffix(path, "/reduce"):
				body = `{"to":1}`
			case method == http.MethodPost:
				last := path[strings.LastIndexByte(path, '/')+1:]
				body = cmp.Or(saleChanges[last], moneyChanges[last])
			}
			send(ask(method, path, body), operator.Role((*op.Security)[0]["operator"][0]))
		}
	}
}

// giveOpen asks for what needs no token: it documents the API.
func giveOpen(r *adminRig) {
	for _, path := range []string{
		"/", "/admin/v1/openapi.json", "/admin/v1/docs", "/admin/v1/docs/viewer.js",
	} {
		r.expect(get(path, ""), 200, "")
	}
	r.expect(get("/", "").with("Accept", "text/html"), 303, "")
	r.expect(get("/admin/v1/docs/none", ""), 404, "not-found")
}

func giveNobody(r *adminRig) {
	r.each(func(c call, _ operator.Role) {
		r.expect(c.with("Authorization", ""), 401, "unauthenticated")
	})
}

// giveLesser has a token that may only look try everything.
func giveLesser(r *adminRig) {
	reader, expired := r.holding("rita", operator.Read, time.Hour), r.holding("old", operator.Admin, -time.Hour)
	r.each(func(c call, _ operator.Role) {
		r.expect(c.with("Authorization", expired), 401, "unauthenticated") // expired ones are no guesses: never 429
		if c.method != http.MethodGet {
			r.expect(c.with("Authorization", reader), 403, "forbidden")
		}
	})
}

// TestEachRouteNeedsTheRoleThatItStates: every call is refused to a token of each smaller role than the contract names,
// and to no other.
func TestEachRouteNeedsTheRoleThatItStates(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	tokens := map[operator.Role]string{}
	for _, role := range operator.Roles {
		tokens[role] = r.holding("holder-of-"+string(role), role, time.Hour)
	}
	asked := map[operator.Role]int{}
	r.each(func(c call, needed operator.Role) {
		asked[needed]++
		for role, token := range tokens {
			got, err := r.try(c.with("Authorization", token))
			must(t, err)
			if refused := got.status == http.StatusForbidden; refused == role.Allows(needed) {
				t.Errorf("%s %s, which needs the role %s, with the role %s: got %d", c.method, c.path, needed, role, got.status)
			}
		}
	})
	if len(asked) != len(operator.Roles) || asked[operator.Admin] < 4 || asked[operator.Operate] < 15 {
		t.Errorf("got operations by role %v", asked)
	}
}

// giveGuesser sends wrong tokens until none is looked at, also not the right one.
func giveGuesser(r *adminRig) {
	for n := range 10 {
		guess := ask("GET", "sales", "").with("Authorization", fmt.Sprint("Bearer guess-", n))
		r.expect(guess, 401, "unauthenticated")
	}
	var asking sync.WaitGroup // each waits for its answer, and some seconds later a try is free again
	defer asking.Wait()
	r.each(func(c call, _ operator.Role) {
		asking.Go(func() {
			began := time.Now()
			got, err := r.try(c)
			if err != nil || got.status != 429 || !strings.Contains(string(got.body), "too-many-attempts") {
				r.t.Errorf("%s %s: got %d %s, %v", c.method, c.path, got.status, got.body, err)
			}
			if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 6 {
				r.t.Errorf("got Retry-After %q, want 1 to 6 s", got.header.Get("Retry-After"))
			}
			if took := time.Since(began); took < time.Second {
				r.t.Errorf("the refusal came after %s, want it held for a second", took)
			}
		})
	})
}

func giveAway(r *adminRig) {
	r.postgres.Cut()
	r.each(func(c call, _ operator.Role) { r.expect(c, 503, "store-unavailable") })
	r.postgres.Heal()
}

func TestAdminToken(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	for _, value := range []string{
		"", "Bearer", "Bearer ", "Bearer " + adminToken[1:], "Bearer " + adminToken + "x", "Basic " + adminToken,
		adminToken, "bearer  " + strings.ToUpper(adminToken),
	} {
		got := r.expect(ask("GET", "sales", "").with("Authorization", value), 401, "unauthenticated")
		if got.header.Get("Www-Authenticate") == "" || strings.Contains(string(got.body), adminToken) {
			t.Errorf("%q: got %v %s, want a challenge and no secret", value, got.header, got.body)
		}
	}
	twice := ask("GET", "sales", "")
	twice.header["Authorization"] = append(twice.header["Authorization"], "Bearer x")
	r.expect(twice, 400, "invalid-request")
	r.expect(ask("GET", "sales", "").with("Authorization", "bearer "+adminToken), 200, "")
	if got, _ := r.try(ask("GET", "nowhere", "").with("Authorization", "")); got.status != 401 { // it is no listed path
		t.Errorf("got %d for a path that is not there, want 401", got.status)
	}
	r.expect(ask("GET", "nowhere", ""), 404, "not-found")
	if got := r.expect(ask("DELETE", "sales", ""), 405,
		"method-not-allowed"); !strings.Contains(got.header.Get("Allow"), "POST") {
		t.Errorf("got Allow %q", got.header.Get("Allow"))
	}
	if strings.Contains(r.logs.String(), adminToken) {
		t.Error("the token is in the log")
	}

	unset := newAdminRig(t, nil, "")
	for _, value := range []string{"", "Bearer ", "Bearer x", "Bearer " + adminToken} {
		unset.expect(ask("POST", "sales", `{"id":"drop-1","total":1}`).with("Authorization", value), 401,
			"unauthenticated")
	}
	unset.expect(ask("GET", "sales", "").with("Authorization", unset.as("ann")), 200, "") // a token of one's own is enough
}

// TestProblemsOfTheAdminSideExplainThemselves: the type of a problem leads somewhere on the address that gave it,
// without a token.
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

// logged checks who did what, by the audit log.
func (r *adminRig) logged(want string) {
	r.t.Helper()
	var got string
	r.scan(`select string_agg(actor || ' ' || action || ' ' || sale_id, '; ' order by id) from audit_log`, &got)
	if got != want {
		r.t.Errorf("the audit log says %q, want %q", got, want)
	}
}

// count is the number that a query finds.
func (r *adminRig) count(query string) (n int) {
	r.t.Helper()
	r.scan(query, &n)
	return n
}

// scan reads the one value of a query.
func (r *adminRig) scan(query string, into any) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), answerLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.database)
	must(r.t, err)
	defer func() { must(r.t, conn.Close(context.WithoutCancel(ctx))) }()
	must(r.t, conn.QueryRow(ctx, query).Scan(into))
}
