package httpapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
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
	for _, path := range []string{"/docs", "/problems/sold-out"} {
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

func TestDocsShowTheWholeContract(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	page := string(r.do(get("/docs", "")).body)
	for path, item := range r.contract.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if !strings.Contains(page, `id="`+op.OperationID+`"`) || !strings.Contains(page, ">"+path+"<") {
				t.Errorf("%s %s is not on the page", method, path)
			}
		}
	}
	for _, p := range httpapi.Problems {
		if !strings.Contains(page, `href="/problems/`+string(p.Code)+`"`) {
			t.Errorf("%s is not on the page", p.Code)
		}
		explained := string(r.expect(get("/problems/"+string(p.Code), ""), 200, "").body)
		if !strings.Contains(explained, p.Title) {
			t.Errorf("/problems/%s does not explain itself", p.Code)
		}
	}
	for _, leftover := range []string{"$ref", "&lt;nil&gt;", "map[", "<code></code>", "`"} {
		if strings.Contains(page, leftover) {
			t.Errorf("the page has %q", leftover)
		}
	}
}
