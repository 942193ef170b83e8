package httpapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"sluice/httpapi"
	"sluice/pipeline"
)

type readiness struct {
	Status string
	Checks []struct {
		Name   string
		OK     bool
		Detail string
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) {
		d.Ready = httpapi.NewReadiness(d.Log, []httpapi.Check{
			{Name: "fine", Run: func(context.Context) error { asked.Add(1); return nil }},
			{Name: "broken", Run: func(context.Context) error { return errors.New("password=x refused") }},
			{Name: "explained", Run: func(context.Context) error {
				return pipeline.Wrap(pipeline.KindUnavailable, errors.New("password=x"), "the schema is old")
			}},
			{Name: "silent", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		}...)
	}})
	answer := r.soon(4*time.Second, get("/readyz", ""), 503, "") // the silent check is given 2 s
	got := decode[readiness](t, answer)
	if got.Status != "not-ready" || len(got.Checks) != 4 || !got.Checks[0].OK || got.Checks[1].Detail != "failed" ||
		got.Checks[2].Detail != "the schema is old" || got.Checks[3].OK {
		t.Errorf("got %s", answer.body)
	}
	if strings.Contains(string(answer.body), "password") {
		t.Errorf("a cause is in the answer: %s", answer.body)
	}
	calls := make([]call, 20)
	for i := range calls {
		calls[i] = get("/readyz", "")
	}
	before := asked.Load()
	if r.flood(calls); asked.Load()-before > 5 { // one, where the machine lets all of them ask within its two seconds
		t.Errorf("20 askers made %d rounds of checks", asked.Load()-before)
	}
	r.expect(get("/healthz", ""), 200, "")
}

// What orders can do without is told, and turns nobody away.
func TestReadyWithoutTheOptional(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) {
		d.Ready = httpapi.NewReadiness(d.Log, httpapi.Check{Name: "fine", Run: func(context.Context) error { return nil }},
			httpapi.Check{Name: "journal", Optional: true, Run: func(context.Context) error {
				return pipeline.Errorf(pipeline.KindUnavailable, "the disk is full")
			}})
	}})
	answer := r.expect(get("/readyz", ""), 200, "")
	want := `{"status":"ready","checks":[{"name":"fine","ok":true,"required":true},` +
		`{"name":"journal","ok":false,"required":false,"detail":"the disk is full"}]}`
	if got := strings.TrimSpace(string(answer.body)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	if got, want := string(r.do(get("/version",
		"")).body), `{"version":"1.2.3","commit":"abc","go":"go1.26"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestContractIsServed: the file and what programs get are the same document.
func TestContractIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	var file any
	must(t, yaml.Unmarshal(httpapi.Contract, &file))
	want, err := json.Marshal(file)
	must(t, err)
	if got := r.do(get("/openapi.json", "")); !bytes.Equal(got.body, want) {
		t.Errorf("got %.300s, want %.300s", got.body, want)
	}
	if _, err := openapi3.NewLoader().LoadFromData(want); err != nil {
		t.Errorf("what is served can't be read: %v", err)
	}
}

// TestPagesStandAlone: the pages load nothing, and their policy lets nothing but their own style through.
func TestPagesStandAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	external := regexp.MustCompile(`(?i)<(script|img|link|iframe|object|embed)|(src|action)=|href="[^/#]|url\(|@import`)
	for _, path := range []string{"/problems", "/problems/sold-out"} {
		answer := r.expect(get(path, ""), 200, "")
		page := string(answer.body)
		if found := external.FindString(page); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		_, rest, _ := strings.Cut(page, "<style>")
		style, _, _ := strings.Cut(rest, "</style>")
		sum := sha256.Sum256([]byte(style))
		hash := base64.StdEncoding.EncodeToString(sum[:])
		if policy := answer.header.Get("Content-Security-Policy"); style == "" ||
			!strings.Contains(policy, "'sha256-"+hash+"'") {
			t.Errorf("%s: the policy %q does not allow the style, sha256-%s", path, policy, hash)
		}
		for _, needed := range []string{`<html lang="en">`, `name="viewport"`, "<title>"} {
			if !strings.Contains(page, needed) {
				t.Errorf("%s lacks %s", path, needed)
			}
		}
	}
}

// TestEveryProblemIsExplained: on the list, and on a page of its own.
func TestEveryProblemIsExplained(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	list := string(r.do(get("/problems", "")).body)
	for _, p := range httpapi.Problems {
		if !strings.Contains(list, `href="/problems/`+string(p.Code)+`"`) {
			t.Errorf("%s is not on the list", p.Code)
		}
		explained := string(r.expect(get("/problems/"+string(p.Code), ""), 200, "").body)
		if !strings.Contains(explained, p.Title) || !strings.Contains(explained, `href="/problems"`) {
			t.Errorf("/problems/%s does not explain itself", p.Code)
		}
	}
}

// TestTheViewerIsWhole: everything that the page of the contract loads is served beside it, compressed or not, and its
// policy lets it load nothing from elsewhere.
func TestTheViewerIsWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	answer := r.expect(get("/docs", ""), 200, "")
	for _, source := range regexp.MustCompile(`[a-z]+-src ([^;]*)`).FindAllStringSubmatch(
		answer.header.Get("Content-Security-Policy"), -1) {
		for allowed := range strings.FieldsSeq(source[1]) {
			if !slices.Contains([]string{"'none'", "'self'", "'unsafe-inline'", "data:"}, allowed) {
				t.Errorf("the policy allows %s", source[0])
			}
		}
	}
	loaded := regexp.MustCompile(`<(?:link|script)[^>]* (?:href|src)="([^"]*)"`).FindAllStringSubmatch(string(answer.body), -1)
	if len(loaded) != 4 {
		t.Errorf("the page loads %d files: %q", len(loaded), loaded)
	}
	types := map[string]string{".css": "text/css", ".js": "application/javascript", ".png": "image/png"}
	for _, one := range loaded {
		name := one[1]
		path := "/" + name // relative to /docs
		plain := r.expect(get(path, ""), 200, "")
		if got := plain.header.Get("Content-Type"); !strings.HasPrefix(got, types[filepath.Ext(name)]) || len(plain.body) == 0 {
			t.Errorf("%s: %d bytes of %q", path, len(plain.body), got)
		}
		packed := r.expect(get(path, "").with("Accept-Encoding", "gzip"), 200, "")
		if len(packed.body) == 0 || len(packed.body) > len(plain.body) {
			t.Errorf("%s: %d bytes compressed, %d otherwise", path, len(packed.body), len(plain.body))
		}
	}
	script := string(r.do(get("/docs/viewer.js", "")).body)
	if !strings.Contains(script, "fetch('openapi.json')") || strings.Contains(script, "https:") {
		t.Errorf("the viewer shows another contract: %s", script)
	}
	for _, path := range []string{"/docs/swagger-ui.css.gz", "/docs/..", "/docs/embed.go"} {
		r.expect(get(path, ""), 404, "not-found")
	}
}

// TestTheRootLeadsOn: a browser to the documentation, a program to the contract.
func TestTheRootLeadsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	browser := r.expect(get("/", "").with("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"), 303, "")
	if got := browser.header.Get("Location"); got != "/docs" {
		t.Errorf("a browser is sent to %q", got)
	}
	program := r.expect(get("/", ""), 200, "")
	for _, path := range decode[map[string]string](t, program) {
		if got := r.do(get(path, "")); got.status != 200 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if got := strings.Join(program.header["Link"], ", "); !strings.Contains(got, `</openapi.json>; rel="service-desc"`) {
		t.Errorf("Link: %s", got)
	}
}
