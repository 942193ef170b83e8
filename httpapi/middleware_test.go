package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/httpapi"
	"sluice/httpapi/auth"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	for _, taken := range []string{"a", "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f", "A.b_c-9", strings.Repeat("x", 64)} {
		got := r.expect(get("/v2", "").with("X-Request-Id", taken), 404, "not-found")
		if got.header.Get("X-Request-Id") != taken || got.problem().RequestID != taken {
			t.Errorf("got %q and %q, want %q", got.header.Get("X-Request-Id"), got.problem().RequestID, taken)
		}
		if !strings.Contains(r.logs.String(), `"request_id":"`+taken+`"`) {
			t.Errorf("%q is not in the log", taken)
		}
	}
	seen := map[string]bool{}
	for _, refused := range []string{"", "a b", "a\tb", `"`, "ü", "a/b", strings.Repeat("x", 65), "<b>"} {
		id := r.expect(get("/v2", "").with("X-Request-Id", refused), 404, "not-found").header.Get("X-Request-Id")
		if id == refused || len(id) < 16 || seen[id] {
			t.Errorf("for %q: got %q, want a fresh id", refused, id)
		}
		seen[id] = true
	}
	twice := get("/v2", "").with("X-Request-Id", "a")
	twice.header.Add("X-Request-Id", "b")
	if id := r.do(twice).header.Get("X-Request-Id"); id == "a" || id == "b" {
		t.Errorf("for two ids: got %q, want a fresh one", id)
	}
}

func TestUnservedPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	for _, path := range []string{
		"/v1", "/v1/sales/", "/v1/sales/drop-1/", "/v1/sales/drop-1/order",
		"/v1/sales/drop-1/orders/",
		"/v1/sales/drop-1/orders/mine/", "/V1/sales", "//v1/sales", "/problems/", "/metrics", "/debug/pprof/",
		"/admin/v1/sales",
	} {
		got := r.expect(get(path, "ann"), 404, "not-found").problem()
		if got.Instance != path || got.Type != "/problems/not-found" {
			t.Errorf("%s: got instance %s, type %s", path, got.Instance, got.Type)
		}
	}
	for path, methods := range map[string]string{
		"/v1/sales/drop-1/orders": "POST", "/v1/sales": "GET", "/v1/sales/drop-1": "GET", "/healthz": "GET", "/docs": "GET",
		"/v1/sales/drop-1/orders/mine": "GET",
	} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "BREW"} {
			got := r.expect(call{method: method, path: path}, 405, "method-not-allowed")
			if allow := got.header.Get("Allow"); !strings.Contains(allow, methods) {
				t.Errorf("%s %s: Allow: %q, want %s in it", method, path, allow, methods)
			}
		}
	}
	r.expect(call{method: http.MethodGet, path: "/v1/sales/drop-1/orders"}, 405, "method-not-allowed")
	options := r.do(call{method: http.MethodOptions, path: "/v1/sales/drop-1/orders"})
	if options.status != 204 || !strings.Contains(options.header.Get("Allow"), "POST") {
		t.Errorf("OPTIONS: got %d, Allow %q", options.status, options.header.Get("Allow"))
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 5))
	r.expect(order("drop-1", "ann", ""), 202, "")
	for _, path := range []string{
		"/v1/sales", "/v1/sales/drop-1", "/v1/sales/drop-1/orders/mine", "/v1/sales/drop-9",
		"/healthz", "/docs",
	} {
		full := r.do(get(path, "ann"))
		head := get(path, "ann")
		head.method = http.MethodHead
		got := r.do(head)
		if got.status != full.status || len(got.body) != 0 ||
			got.header.Get("Content-Type") != full.header.Get("Content-Type") {
			t.Errorf("%s: got %d %s and %d bytes, want %d %s and none", path, got.status, got.header.Get("Content-Type"),
				len(got.body), full.status, full.header.Get("Content-Type"))
		}
	}
}

func TestEveryAnswerIsSafeInABrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	for _, path := range []string{"/v1/sales", "/nowhere", "/docs", "/problems/internal", "/openapi.json"} {
		h := r.do(get(path, "")).header
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"),
			"default-src 'none'") {
			t.Errorf("%s: got %v", path, h)
		}
	}
}

// TestFaultsTellNothing: a panic and an unexpected error are 500 for the client and a cause in the log.
func TestFaultsTellNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	got := r.expect(order("drop-1", breakingUser, ""), 500, "internal")
	const cause = "a cause that no client may see"
	if strings.Contains(string(got.body), cause) || strings.Contains(string(got.body), ".go:") {
		t.Errorf("the cause is in the answer: %s", got.body)
	}
	line := r.logLine(t, got.problem().RequestID)
	if line["level"] != "ERROR" || !strings.Contains(line["error"].(string), cause) ||
		!strings.Contains(fmt.Sprint(line["stack"]), ".go:") {
		t.Errorf("got log %v, want the cause and where it was", line)
	}

	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"unknown error":  {errors.New(cause), 500, "internal"},
		"unknown kind":   {pipeline.Errorf(pipeline.KindData, cause), 500, "internal"},
		"silent service": {pipeline.Wrap(pipeline.KindUnavailable, errors.New(cause), "no keys"), 503, "store-unavailable"},
		"deadline":       {context.DeadlineExceeded, 503, "store-unavailable"},
	} {
		failing := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.Auth = failingAuth{c.err} }})
		got := failing.expect(order("drop-1", "ann", ""), c.status, c.code)
		if strings.Contains(string(got.body), cause) {
			t.Errorf("%s: the cause is in the answer: %s", name, got.body)
		}
		if line := failing.logLine(t, got.problem().RequestID); !strings.Contains(line["error"].(string), c.err.Error()) {
			t.Errorf("%s: got log %v, want the cause", name, line)
		}
	}
}

// failingAuth is an authenticator whose own means fail.
type failingAuth struct{ err error }

func (a failingAuth) Authenticate(*http.Request) (string, error) { return "", a.err }

// logLine returns the access log's line about a request.
func (r *rig) logLine(t *testing.T, requestID string) map[string]any {
	t.Helper()
	for line := range strings.Lines(r.logs.String()) {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if got["msg"] == "request" && got["request_id"] == requestID {
			return got
		}
	}
	t.Fatalf("no line about %s in:\n%s", requestID, r.logs.String())
	return nil
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	quiet := newRig(t, rigOptions{})
	loud := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.LogOrders = true }})
	for _, r := range []*rig{quiet, loud} {
		orders := "DEBUG"
		if r == loud {
			orders = "INFO"
		}
		r.create(newSale("drop-1", 1))
		for _, c := range []struct {
			call   call
			status int
			level  string
			route  string
		}{
			{order("drop-1", "secret-ann", "").with("Idempotency-Key", "secret-key"), 202, orders, "/v1/sales/:sale/orders"},
			{order("drop-1", "secret-bob", ""), 409, orders, "/v1/sales/:sale/orders"},
			{order("drop-1", "secret-bob", `{"secret-field":1}`), 400, "INFO", "/v1/sales/:sale/orders"},
			{order("drop-1", "secret-bob{}", ""), 400, "INFO", "/v1/sales/:sale/orders"},
			{get("/v1/sales/drop-1/orders/mine", "secret-ann"), 200, "INFO", "/v1/sales/:sale/orders/mine"},
			{get("/secret-path", ""), 404, "INFO", "unmatched"},
		} {
			got := r.do(c.call)
			line := r.logLine(t, got.header.Get("X-Request-Id"))
			if line["level"] != c.level || line["route"] != c.route || line["method"] != c.call.method ||
				line["status"] != float64(c.status) || line["us"].(float64) < 1 {
				t.Errorf("%s %s: got %v, want %d %s %s", c.call.method, c.call.path, line, c.status, c.level, c.route)
			}
		}
		if strings.Contains(r.logs.String(), "secret") {
			t.Errorf("the log names buyers:\n%s", r.logs.String())
		}
	}
}

// TestMetricsAreBounded: whatever clients try, the labels stay few.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(newSale("drop-1", 1))
	r.expect(order("drop-1", "ann", ""), 202, "")
	r.expect(order("drop-1", "bob", ""), 409, "sold-out")
	for _, path := range []string{"/a", "/b", "/v1/x", "/v1/sales/" + strings.Repeat("z", 70)} {
		r.do(get(path, ""))
		r.do(call{method: "BREW", path: path})
	}
	families, err := r.registry.Gather()
	must(t, err)
	got := map[string]uint64{}
	for _, family := range families {
		switch family.GetName() {
		case "sluice_http_request_duration_seconds":
		case "sluice_http_limited_total": // by the names of the limits, which are there from the start
			if n := len(family.GetMetric()); n != 4 {
				t.Errorf("%s has %d series, want 4", family.GetName(), n)
			}
			continue
		default:
			t.Errorf("unexpected metric %s", family.GetName())
		}
		for _, m := range family.GetMetric() {
			name := ""
			for _, label := range m.GetLabel() {
				name += label.GetName() + "=" + label.GetValue() + " "
			}
			got[name] = m.GetHistogram().GetSampleCount()
		}
	}
	want := map[string]uint64{
		"method=POST route=/v1/sales/:sale/orders status_class=2xx ": 1,
		"method=POST route=/v1/sales/:sale/orders status_class=4xx ": 1,
		"method=GET route=unmatched status_class=4xx ":               3,
		"method=other route=unmatched status_class=4xx ":             3,
		"method=GET route=/v1/sales/:sale status_class=4xx ":         1,
		"method=other route=/v1/sales/:sale status_class=4xx ":       1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: got %d, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestClientThatLeft: an answer that its client did not wait for is no fault of the server.
func TestClientThatLeft(t *testing.T) {
	t.Parallel()
	redis := testkit.PrivateRedis(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r := newRig(t, rigOptions{redisURL: redis.URL(), deps: func(d *httpapi.Deps) { d.Auth = leavingAuth{leave} }})
	r.create(newSale("drop-1", 1))
	must(t, redis.Pause())
	defer func() { must(t, redis.Resume()) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.address+"/v1/sales/drop-1/orders", nil)
	must(t, err)
	request.Header.Set("X-User-Id", "ann")
	if response, err := r.client.Do(request); err == nil {
		t.Errorf("got an answer, %s", response.Status)
		response.Body.Close()
	}
	testkit.Eventually(t, time.Minute, "the log line", func() bool {
		return strings.Contains(r.logs.String(), `"status":499`)
	})
}

// leavingAuth has the client leave once its request has arrived.
type leavingAuth struct{ leave func() }

func (a leavingAuth) Authenticate(r *http.Request) (string, error) {
	a.leave()
	return auth.Dev{}.Authenticate(r)
}

// waitingAuth is an authenticator that waits for as long as it may.
type waitingAuth struct{}

func (waitingAuth) Authenticate(r *http.Request) (string, error) {
	<-r.Context().Done()
	return "", r.Context().Err()
}

// TestRequestsHaveADeadline: whatever a handler waits for, the client gets an answer.
func TestRequestsHaveADeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.Auth = waitingAuth{} }})
	got := r.expect(order("drop-1", "ann", ""), 503, "store-unavailable")
	if got.took < 4*time.Second || got.header.Get("Retry-After") == "" {
		t.Errorf("got it after %s with %v", got.took, got.header)
	}
}
