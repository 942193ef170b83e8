package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"sluice/console"
	"sluice/pipeline"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
)

// TestRoles: a token does what its role allows and no more, and says so.
func TestRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	for _, has := range operator.Roles {
		b := r.as("ann-"+string(has), has)
		token := formOf(b.get("/console/").body)
		for _, route := range console.Routes() {
			method, path := pathOf(route.Pattern)
			if route.Role == console.Open || strings.HasSuffix(path, "live") || strings.HasSuffix(path, "sign-out") {
				continue
			}
			var got answer
			if method == http.MethodPost {
				got = b.post(path, token) // without a reason nothing is done
			} else {
				got = b.get(path)
			}
			if allowed := got.status != http.StatusForbidden; allowed != has.Allows(route.Role) {
				t.Errorf("%s may %s: got %d, %s", has, route.Pattern, got.status, textOf(got.body))
			}
		}
		sale := b.get("/console/sales/drop-1").body
		if offered := strings.Contains(sale, "change/pause"); offered != has.Allows(operator.Operate) {
			t.Errorf("%s is offered to pause: %t", has, offered)
		}
	}
	if got := r.stored("drop-1"); got.State != pipeline.SaleActive || got.Version != 1 {
		t.Errorf("the sale was changed: %+v", got)
	}
}

// TestForgedForms: a form that another page has sent, or that is of no session, does nothing.
func TestForgedForms(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	b, other := r.as("ann", operator.Admin), r.as("eve", operator.Admin)
	const path = "/console/sales/drop-1/change/pause"
	right := b.plan(path, "maintenance")
	for name, header := range map[string]http.Header{
		"cross-site": {"Sec-Fetch-Site": {"cross-site"}}, "same-site": {"Sec-Fetch-Site": {"same-site"}},
		"another origin": {"Origin": {"https://evil.example"}}, "no origin": {"Origin": {"null"}},
	} {
		b.header = header
		if got := b.post(path, right); got.status != http.StatusForbidden {
			t.Errorf("%s: got %d", name, got.status)
		}
	}
	b.header = http.Header{}
	theirs := other.plan(path, "x").Get("form_token")
	for _, token := range []string{"", "x", theirs, right.Get("form_token") + "0"} {
		wrong := b.plan(path, "maintenance")
		wrong.Set("form_token", token)
		b.want(http.StatusForbidden, b.post(path, wrong), "not of your session")
	}
	if got := r.stored("drop-1"); got.State != pipeline.SaleActive {
		t.Errorf("the sale is %s", got.State)
	}
	b.header.Set("Sec-Fetch-Site", "same-origin")
	b.want(http.StatusSeeOther, b.post(path, right))
	if got := r.stored("drop-1"); got.State != pipeline.SalePaused {
		t.Errorf("the right form: the sale is %s", got.State)
	}
}

var inline = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script(?:\s+(?:defer|async))*\s*>|javascript:|<base|<iframe`)

// TestHeaders: every answer forbids what no page of ours needs, and no page needs it.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	b := r.as("ann", operator.Admin)
	for _, route := range append(console.Routes(), console.Route{Pattern: "GET /console/sales/nope"}) {
		method, path := pathOf(route.Pattern)
		if method == http.MethodPost || strings.HasSuffix(path, "live") {
			continue
		}
		got := b.get(path)
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, got.header.Get(name))
			}
		}
		policy := got.header.Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "form-action 'self'",
			"base-uri 'none'",
		} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy %q allows too much", path, policy)
		}
		if got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: caches may keep it", path)
		}
		if found := inline.FindString(got.body); found != "" {
			t.Errorf("%s: has %q, which the policy forbids", path, found)
		}
	}
	page := b.get("/console/").body
	for _, asset := range regexp.MustCompile(`/console/assets/[0-9a-z.-]+`).FindAllString(page, -1) {
		got := b.want(http.StatusOK, b.get(asset))
		if !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: is fetched again and again", asset)
		}
	}
}

// TestHostileTexts: what buyers and operators have written is shown, and does nothing.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	const evil, shown = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`, `&lt;script&gt;alert(1)&lt;/script&gt;`
	r := newRig(t, pipelinetest.Options{Sale: pipeline.Sale{Title: evil, Note: evil, Total: 5}})
	const buyer = `"><svg/onload=alert(3)>`
	receipt := r.Admit(buyer, 1)
	r.Persist(r.Events(r.Sale)...)
	b := r.as("ann", operator.Admin)
	const change = "/console/sales/drop-1/change/pause"
	b.want(http.StatusSeeOther, b.post(change, b.plan(change, evil)))
	letter := r.bury(map[string]any{"s": "drop-1", "u": evil, "q": evil, evil: evil}, evil)
	order := "/console/sales/drop-1/orders/" + receipt.OrderID
	for path, says := range map[string]string{
		"/console/": shown, "/console/sales/drop-1": shown, "/console/log": shown, order: "&lt;svg/onload=alert(3)&gt;",
		"/console/orders":                  "&lt;svg/onload=alert(3)&gt;",
		"/console/orders?q=%3Cscript%3Ex":  "&lt;script&gt;x",
		"/console/?q=%22%3E%3Cscript%3Ex":  "&lt;script&gt;x",
		"/console/?done=%3Cscript%3E":      "Sales",
		change:                             shown,
		"/console/sales/drop-1/audit":      shown,
		letter:                             shown,
		letter + "/replay?set_u=%3Cscript": "&lt;script",
		"/console/dead-letters":            shown,
		"/console/log?actor=%3Cscript%3E":  "&lt;script&gt;",
	} {
		got := b.want(http.StatusOK, b.get(path))
		for _, raw := range []string{"<script>", "<img src=x", "<svg/onload"} {
			if strings.Contains(got.body, raw) {
				t.Errorf("%s: has %q", path, raw)
			}
		}
		if !strings.Contains(got.body, says) {
			t.Errorf("%s: does not show %q", path, says)
		}
	}
}
