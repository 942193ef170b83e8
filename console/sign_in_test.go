package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sluice/console"
	"sluice/internal/testkit"
	"sluice/pipeline/operator"
	"sluice/pipeline/pipelinetest"
)

// pathOf is a path that a route takes.
func pathOf(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	if path == "" {
		method, path = http.MethodGet, method+"nowhere"
	}
	return method, strings.NewReplacer("{$}", "", "{sale}", "drop-1", "{verb}", "pause", "{id}", "1", "{file}", "x",
		"{order}", "01990000-0000-7000-8000-000000000001").Replace(path)
}

// TestNothingWithoutASignIn: no route but those of the sign-in says or does anything.
func TestNothingWithoutASignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	b := r.browser()
	for _, route := range console.Routes() {
		method, path := pathOf(route.Pattern)
		var got answer
		if method == http.MethodPost {
			got = b.post(path, url.Values{"reason": {"x"}})
		} else {
			got = b.get(path)
		}
		switch {
		case route.Role == console.Open:
		case strings.HasSuffix(path, "live"):
			b.want(http.StatusUnauthorized, got)
		case got.status != http.StatusSeeOther || !strings.HasPrefix(got.location, "/console/sign-in"):
			t.Errorf("%s: got %d to %q", route.Pattern, got.status, got.location)
		}
		if strings.Contains(got.body, "drop-1") && route.Role != console.Open && got.status == http.StatusOK {
			t.Errorf("%s: says something of a sale", route.Pattern)
		}
	}
	if got := r.stored("drop-1").State; got != "active" {
		t.Errorf("the sale is %s", got)
	}
}

// TestASignIn: the cookie can't be read by a script, is sent by our own pages only, and has no token in it; nothing of
// the token is in the log either.
func TestASignIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	_, text := r.token("ann", operator.Read)
	b := r.browser()
	got := b.post("/console/sign-in", url.Values{"token": {" " + text + "\n"}, "next": {"/console/log?actor=cli:ann"}})
	b.want(http.StatusSeeOther, got)
	if got.location != "/console/log?actor=cli:ann" {
		t.Errorf("leads to %q", got.location)
	}
	cookie := got.header.Get("Set-Cookie")
	for _, part := range []string{
		"sluice_console=", "; HttpOnly", "; SameSite=Strict", "; Path=/console/", "; Max-Age=43200",
	} {
		if !strings.Contains(cookie, part) {
			t.Errorf("cookie %q: want %q", cookie, part)
		}
	}
	if strings.Contains(cookie, "Secure") {
		t.Errorf("cookie %q is not sent without TLS", cookie)
	}
	b.want(http.StatusOK, b.get("/console/"))
	secret := text[strings.LastIndex(text, "_")+1:]
	for what, where := range map[string]string{"cookie": cookie, "log": r.logs.String(), "address": got.location} {
		if strings.Contains(where, secret) || strings.Contains(where, text) {
			t.Errorf("the %s has the token", what)
		}
	}
	behind := r.browser()
	behind.header.Set("X-Forwarded-Proto", "https")
	cookie = behind.post("/console/sign-in", url.Values{"token": {text}}).header.Get("Set-Cookie")
	for _, part := range []string{"__Host-sluice_console=", "; HttpOnly", "; SameSite=Strict", "; Path=/;", "; Secure"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("under TLS, cookie %q: want %q", cookie, part)
		}
	}
}

// TestASessionEnds: with a sign-out, although the cookie was copied; with its token; with its time.
func TestASessionEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{})
	signedIn := func(b *browser) bool {
		t.Helper()
		got := b.get("/console/")
		if got.status != http.StatusOK && got.status != http.StatusSeeOther {
			t.Fatalf("got %d", got.status)
		}
		return got.status == http.StatusOK
	}
	t.Run("sign-out", func(t *testing.T) {
		b, copied := r.as("ann", operator.Read), r.browser()
		at, err := url.Parse(r.url + "/console/")
		must(t, err)
		copied.client.Jar.SetCookies(at, b.client.Jar.Cookies(at))
		if !signedIn(copied) {
			t.Fatal("a copy of the cookie is not taken: this test proves nothing")
		}
		b.want(http.StatusSeeOther, b.post("/console/sign-out", formOf(b.get("/console/").body)))
		if signedIn(b) || signedIn(copied) {
			t.Error("signed in still")
		}
	})
	t.Run("revoked", func(t *testing.T) {
		id, text := r.token("bob", operator.Read)
		b := r.browser()
		b.signIn(text)
		_, _, err := r.Store.OperatorTokens().Revoke(r.Ctx(), id, "cli:test")
		must(t, err)
		testkit.Eventually(t, pipelinetest.CallLimit, "the session to end", func() bool { return !signedIn(b) })
	})
	t.Run("setting replaced", func(t *testing.T) {
		b := r.browser()
		b.signIn(bootstrapToken)
		if !signedIn(b) {
			t.Fatal("not signed in")
		}
		r.keyring.ReplaceBootstrap("another-secret-of-32-characters-x")
		if signedIn(b) {
			t.Error("signed in still, with a token that counts no more")
		}
	})
	t.Run("time", func(t *testing.T) {
		b := r.as("eve", operator.Read)
		r.pass(console.SessionLife - 1e9)
		if !signedIn(b) {
			t.Error("it ends too early")
		}
		r.pass(2e9)
		if signedIn(b) {
			t.Error("it lasts too long")
		}
	})
}

// TestForgedCookies: nothing but what was sealed here is taken.
func TestForgedCookies(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{NoSale: true})
	other := newRig(t, pipelinetest.Options{NoSale: true}, func(d *console.Deps) { d.Secret = []byte("of another one") })
	at, err := url.Parse(r.url + "/console/")
	must(t, err)
	b := other.browser()
	b.signIn(bootstrapToken)
	theirs, err := url.Parse(other.url + "/console/")
	must(t, err)
	foreign := b.client.Jar.Cookies(theirs)[0].Value
	mine := r.browser()
	mine.signIn(bootstrapToken)
	right := mine.client.Jar.Cookies(at)[0].Value
	sealed, sum, _ := strings.Cut(right, ".")
	for name, value := range map[string]string{
		"another installation's": foreign, "empty": "", "no seal": sealed, "empty seal": sealed + ".",
		"changed": "A" + right[1:], "another seal": sealed + "." + strings.Repeat("A", len(sum)),
		"long": strings.Repeat(right, 40),
	} {
		forger := r.browser()
		forger.header.Set("Cookie", "sluice_console="+value)
		if got := forger.get("/console/"); got.status != http.StatusSeeOther {
			t.Errorf("%s: got %d", name, got.status)
		}
	}
	forger := r.browser()
	forger.header.Set("Cookie", "sluice_console="+right)
	forger.want(http.StatusOK, forger.get("/console/"))
}

// TestWrongTokensAreSlow: they count as those of the admin API do.
func TestWrongTokensAreSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t, pipelinetest.Options{NoSale: true})
	b := r.browser()
	for range 10 {
		b.want(http.StatusUnauthorized, b.post("/console/sign-in", url.Values{"token": {"wrong"}}), "It is no token")
	}
	got := b.want(http.StatusTooManyRequests, b.post("/console/sign-in", url.Values{"token": {bootstrapToken}}))
	if got.header.Get("Retry-After") == "" || got.header.Get("Set-Cookie") != "" {
		t.Errorf("got the header %v", got.header)
	}
}

// TestWhereASignInLeads: to a page of this console, and nowhere else.
func TestWhereASignInLeads(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"/console/", "/console/log?actor=a%20b", "/console/sales/drop-1"} {
		if got := console.Next(to); got != to {
			t.Errorf("%q: got %q", to, got)
		}
	}
	for _, to := range []string{
		"", "https://evil.example/console/", "//evil.example/console/", "/\\evil.example", "/console/../admin/v1/log",
		"javascript:x",
		"/consolex", "/console/\r\nSet-Cookie: a=b", "console/", "/console/sign-in", "http:/console/", "https:console/",
		"/console/" + strings.Repeat("a", 2000),
	} {
		if got := console.Next(to); got != "/console/" {
			t.Errorf("%q: got %q", to, got)
		}
	}
}
