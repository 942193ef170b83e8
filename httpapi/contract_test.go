package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"sluice/httpapi"
)

// contract is openapi.yaml, against which every answer of a test is checked. It remembers which of the listed answers
// were given.
type contract struct {
	doc *openapi3.T

	mu    sync.Mutex // protects given
	given map[string]bool
}

func loadContract(t testing.TB) *contract {
	t.Helper()
	return loadDocument(t, httpapi.Contract)
}

func loadDocument(t testing.TB, document []byte) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatalf("the contract: %v", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("the contract: %v", err)
	}
	// The published contract allows answers to grow; the tests do not, so that no field goes undocumented.
	for _, schema := range doc.Components.Schemas {
		if schema.Value.Type.Is("object") {
			schema.Value.AdditionalProperties = openapi3.BoolSchema{Has: new(bool)}
		}
	}
	return &contract{doc: doc, given: map[string]bool{}}
}

// check returns an error when the contract does not list such an answer, or describes it differently.
func (c *contract) check(r *http.Request, got reply) error {
	if len(got.header[http.CanonicalHeaderKey("X-Request-Id")]) != 1 {
		return fmt.Errorf("X-Request-Id: %q", got.header["X-Request-Id"])
	}
	if r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil // HEAD is GET without a body, OPTIONS is echo's: neither is listed
	}
	path, item := c.find(r.URL)
	if item == nil || item.GetOperation(r.Method) == nil {
		return c.checkUnlisted(got)
	}
	op := item.GetOperation(r.Method)
	if op.Responses.Status(got.status) == nil {
		return fmt.Errorf("%s %s does not list %d", r.Method, path, got.status)
	}
	name := fmt.Sprintf("%s %s %d", r.Method, path, got.status)
	if code := got.code(); code != "" {
		if op.Responses.Status(got.status).Value.Content.Get("application/problem+json").Examples[code] == nil {
			return fmt.Errorf("%s does not list %s", name, code)
		}
		name += " " + code
	}
	c.mu.Lock()
	c.given[name] = true
	c.mu.Unlock()
	route := &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: r.Method, Operation: op}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, MultiError: true,
			ExcludeResponseBody: isPage(got), // the library reads no HTML, files and events; their own tests do
		},
	})
}

func isPage(got reply) bool {
	kind := got.header.Get("Content-Type")
	return strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "image/") || kind == "application/javascript" ||
		kind == "application/jsonl"
}

// checkUnlisted checks an answer that belongs to no operation: a problem of its own kind.
func (c *contract) checkUnlisted(got reply) error {
	p := got.problem()
	if p.Code != "not-found" && p.Code != "method-not-allowed" {
		return fmt.Errorf("%d %q where no operation is listed", got.status, p.Code)
	}
	return c.checkProblem(got)
}

// checkProblem checks a problem document against its schema and its status.
func (c *contract) checkProblem(got reply) error {
	value, err := jsonValue(got.body)
	if err != nil {
		return err
	}
	if p := got.problem(); p.Status != got.status {
		return fmt.Errorf("the document says %d, the answer %d", p.Status, got.status)
	}
	return c.doc.Components.Schemas["Problem"].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}

// find returns the path of the contract that a request matches; the one with more literal segments wins.
func (c *contract) find(u *url.URL) (string, *openapi3.PathItem) {
	for _, path := range c.doc.Paths.InMatchingOrder() {
		if matchesPath(path, u.EscapedPath()) {
			return path, c.doc.Paths.Value(path)
		}
	}
	return "", nil
}

func matchesPath(pattern, path string) bool {
	if pattern == "/" || path == "/" {
		return pattern == path
	}
	wanted, given := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(wanted) != len(given) || given[len(given)-1] == "" {
		return false
	}
	for i, segment := range wanted {
		if !strings.HasPrefix(segment, "{") && segment != given[i] {
			return false
		}
	}
	return true
}

// listed returns every answer of the contract: method, path, status, and the code where it is a problem.
func (c *contract) listed() []string {
	var all []string
	for path, item := range c.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, response := range op.Responses.Map() {
				name := method + " " + path + " " + status
				content := response.Value.Content.Get("application/problem+json")
				if content == nil {
					all = append(all, name)
					continue
				}
				for code := range content.Examples {
					all = append(all, name+" "+code)
				}
			}
		}
	}
	return all
}

// TestContractMatchesTheTableOfProblems compares the contract's codes and examples with the one table from code to
// status.
func TestContractMatchesTheTableOfProblems(t *testing.T) {
	t.Parallel()
	matchesProblems(t, loadContract(t), httpapi.Problems, "method-not-allowed", "headers-too-large", "local-only")
}

// matchesProblems compares a contract's codes and examples with a table. Codes that belong to no operation need no
// example.
func matchesProblems(t *testing.T, c *contract, table []httpapi.ProblemDefinition, unlisted ...string) {
	t.Helper()
	listed := map[string]bool{}
	for _, code := range c.doc.Components.Schemas["Code"].Value.Enum {
		listed[code.(string)] = true
	}
	for _, want := range table {
		code := string(want.Code)
		if !listed[code] {
			t.Errorf("%s is in the table and not in the contract", code)
		}
		delete(listed, code)
		example := c.doc.Components.Examples[code]
		if slices.Contains(unlisted, code) {
			continue
		}
		if example == nil {
			t.Errorf("%s has no example", code)
			continue
		}
		got := example.Value.Value.(map[string]any)
		status := fmt.Sprint(got["status"])
		if got["title"] != want.Title || status != strconv.Itoa(want.Status) || got["type"] != "/problems/"+code ||
			got["code"] != code {
			t.Errorf("the example of %s says %v %v %v %v, want %q %d", code, got["title"], got["status"], got["type"],
				got["code"],
				want.Title, want.Status)
		}
	}
	for code := range listed {
		t.Errorf("%s is in the contract and not in the table", code)
	}
}

// TestEveryListedAnswerIsGiven drives the service, its stores alive, paused and killed, until every answer that the
// contract lists was seen; each is checked against the contract.
func TestEveryListedAnswerIsGiven(t *testing.T) {
	t.Parallel()
	c := loadContract(t)
	giveOrders(t, c)
	giveStatus(t, c)
	giveCancel(t, c)
	giveWait(t, c)
	giveEvents(t, c)
	givePayments(t, c)
	giveWaitlist(t, c)
	giveService(t, c)
	giveOutages(t, c)
	giveBacklog(t, c)
	giveStrict(t, c)
	giveIdentity(t, c)
	giveLimits(t, c)
	giveEntry(t, c)
	for _, answer := range c.listed() {
		if !c.given[answer] {
			t.Errorf("never given: %s", answer)
		}
	}
}

func giveOrders(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	r.create(newSale("open", 2))
	r.defineOnly(newSale("not-loaded", 1))
	later := newSale("later", 1)
	later.OpensAt, later.ClosesAt = later.OpensAt.Add(2*time.Hour), later.ClosesAt.Add(2*time.Hour)
	r.create(later)
	over := newSale("over", 1)
	over.OpensAt, over.ClosesAt = over.OpensAt.Add(-2*time.Hour), over.ClosesAt.Add(-2*time.Hour)
	r.create(over)
	r.create(newSale("paused", 1))
	r.setState("paused", "paused")

	keyed := order("open", "ann", `{"quantity":2}`).with("Idempotency-Key", "k1")
	r.expect(keyed, 202, "")
	r.expect(order("open", "ann", "").with("Idempotency-Key", "k1"), 422, "idempotency-key-reused")
	r.expect(order("open", "ann", ""), 409, "already-ordered")
	r.expect(order("open", "bob", ""), 409, "sold-out")
	r.expect(order("later", "bob", ""), 409, "sale-not-open")
	r.expect(order("over", "bob", ""), 409, "sale-closed")
	r.expect(order("paused", "bob", ""), 409, "sale-paused")
	r.expect(order("open", "bob", `{"quantity":4}`), 400, "invalid-request")
	r.expect(order("open", "", ""), 401, "unauthenticated")
	r.expect(order("unknown", "bob", ""), 404, "unknown-sale")
	r.expect(order("open", "bob", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(order("open", "bob", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	r.expect(order("open", breakingUser, ""), 500, "internal")
	r.expect(order("not-loaded", "bob", ""), 503, "sale-not-loaded")
	for _, colour := range []string{"red", "blue"} {
		sale := newSale(colour, 5)
		sale.LimitGroup, sale.GroupLimit = "lamps", 2
		r.create(sale)
	}
	r.expect(get("/v1/sales/red", ""), 200, "")
	r.expect(order("red", "ann", `{"quantity":2}`), 202, "")
	refused := r.expect(order("blue", "ann", ""), 409, "over-group-limit").problem()
	if want := "you may have 2 units in the sales of group lamps together; in the others of them you have, or wait for, 2"; refused.Detail != want {
		t.Errorf("over the limit of a group: got %q, want %q", refused.Detail, want)
	}
}

func giveStatus(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(newSale("drop-1", 10))
	placed := r.expect(order("drop-1", "ann", ""), 202, "")
	mine, own := "/v1/sales/drop-1/orders/mine", placed.header.Get("Location")
	for _, path := range []string{mine, own} {
		queued := r.expect(get(path, "ann"), 200, "")
		r.expect(get(path, "ann").with("If-None-Match", queued.header.Get("ETag")), 304, "")
		r.expect(get(path, "ann{}"), 400, "invalid-request")
		r.expect(get(path, ""), 401, "unauthenticated")
		r.expect(get(path, "bob"), 404, "unknown-order")
		r.expect(get(strings.Replace(path, "drop-1", "drop-2", 1), "ann"), 404, "unknown-sale")
		r.expect(get(path, breakingUser), 500, "internal")
	}
	r.persist(sale)
	r.expect(get(own, "ann"), 200, "")
}

func giveService(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	r.create(newSale("drop-1", 10))
	for _, path := range []string{
		"/v1/sales", "/v1/sales/drop-1", "/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/viewer.js",
		"/problems", "/problems/sold-out", "/",
	} {
		r.expect(get(path, ""), 200, "")
	}
	r.expect(get("/", "").with("Accept", "text/html"), 303, "")
	r.expect(get("/docs/none", ""), 404, "not-found")
	r.expect(get("/v1/sales?limit=0", ""), 400, "invalid-request")
	r.expect(get("/v1/sales/drop-2", ""), 404, "unknown-sale")
	r.expect(get("/problems/none", ""), 404, "not-found")
}
