package console_test

import (
	"context"
	"errors"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/console"
	"sluice/db"
	"sluice/httpapi/auth"
	"sluice/httpapi/limits"
	"sluice/internal/process"
	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/operator"
	"sluice/pipeline/overview"
	"sluice/pipeline/pipelinetest"
	"sluice/pipeline/sales"
)

const bootstrapToken = "a-secret-of-32-characters-or-more"

// rig is a whole console on a port of its own, over real stores. It may do in Postgres what an api may.
type rig struct {
	*pipelinetest.Rig
	url       string
	keyring   *operator.Keyring
	catalogue *sales.Catalogue
	logs      *testkit.Log

	mu    sync.Mutex // protects ahead
	ahead time.Duration
}

func newRig(t *testing.T, o pipelinetest.Options, edits ...func(*console.Deps)) *rig {
	t.Helper()
	r := &rig{Rig: pipelinetest.New(t, o), logs: &testkit.Log{}}
	store, err := db.Open(r.Ctx(), testkit.AsAPI(r.Options.DatabaseURL), db.Options{})
	must(t, err)
	t.Cleanup(store.Close)
	log := slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	parts := process.NewParts(r.Redis, store, r.Options.Partitions, log)
	parts.Keys = r.Keys
	secret, err := store.StreamSecret(r.Ctx())
	must(t, err)
	r.keyring = operator.NewKeyring(store.OperatorTokens(), bootstrapToken)
	r.catalogue = sales.NewCatalogue(store, log)
	r.reload()
	deps := console.Deps{
		Operators: auth.NewOperators(r.keyring, limits.NewAddresses(nil).Client, nil),
		Secret:    secret, Store: store,
		Overview: overview.NewReader(overview.Config{
			Redis: r.Redis, Keys: r.Keys, Partitions: r.Options.Partitions, Store: store.Overview(), Sales: r.catalogue,
			Durability: pipeline.DurabilityMemory,
		}),
		Publisher: parts.Publisher(), Auditor: parts.Auditor(), Replayer: parts.Replayer(), Requests: parts.Requests(),
		Version: "1.2.3", Log: log, Now: r.now,
		Settings: []console.Setting{{Name: "DURABILITY", Value: "memory", Help: "What a receipt promises."}},
	}
	for _, edit := range edits {
		edit(&deps)
	}
	r.serve(console.New(deps))
	return r
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.ahead)
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
}

// reload does what an api's catalogue does every second.
func (r *rig) reload() { must(r, r.catalogue.Load(r.Ctx())) }

func (r *rig) serve(c *console.Console) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r, err)
	// The limits that the operations side has.
	server := &http.Server{Handler: c, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	server.RegisterOnShutdown(c.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	r.url = "http://" + l.Addr().String()
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pipelinetest.CallLimit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			r.Errorf("shut the server down: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			r.Errorf("serve: %v", err)
		}
	})
}

// token makes a token, and returns its text.
func (r *rig) token(name string, role operator.Role) (id, text string) {
	r.Helper()
	token, text, err := operator.New(name, role, time.Now().Add(time.Hour), "cli:test")
	must(r, err)
	added, err := r.Store.OperatorTokens().Add(r.Ctx(), token)
	must(r, err)
	return added.ID, text
}

// browser is somebody's, which follows no redirect by itself.
type browser struct {
	*rig
	client *http.Client
	header http.Header
}

func (r *rig) browser() *browser {
	jar, err := cookiejar.New(nil)
	must(r, err)
	transport := &http.Transport{}
	r.Cleanup(transport.CloseIdleConnections)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{r, &http.Client{
		Jar: jar, Transport: transport, CheckRedirect: stay, Timeout: pipelinetest.CallLimit,
	}, http.Header{}}
}

// as is a browser that is signed in with a new token.
func (r *rig) as(name string, role operator.Role) *browser {
	r.Helper()
	_, text := r.token(name, role)
	b := r.browser()
	b.signIn(text)
	return b
}

func (b *browser) signIn(token string) {
	b.Helper()
	b.want(http.StatusSeeOther, b.post("/console/sign-in", url.Values{"token": {token}}))
}

// answer is what came back.
type answer struct {
	status   int
	location string
	header   http.Header
	body     string
}

func (b *browser) do(r *http.Request) answer {
	b.Helper()
	for name, values := range b.header {
		r.Header[name] = values
	}
	response, err := b.client.Do(r)
	must(b, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(b, err)
	return answer{response.StatusCode, response.Header.Get("Location"), response.Header, string(body)}
}

func (b *browser) get(path string) answer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Ctx(), http.MethodGet, b.url+path, http.NoBody)
	must(b, err)
	return b.do(r)
}

func (b *browser) post(path string, form url.Values) answer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Ctx(), http.MethodPost, b.url+path, strings.NewReader(form.Encode()))
	must(b, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

// want expects a status.
func (b *browser) want(status int, got answer, says ...string) answer {
	b.Helper()
	if got.status != status {
		b.Fatalf("got %d, want %d: %s", got.status, status, textOf(got.body))
	}
	for _, text := range says {
		if !strings.Contains(textOf(got.body), text) {
			b.Errorf("got a page without %q:\n%s", text, textOf(got.body))
		}
	}
	return got
}

var (
	tags    = regexp.MustCompile(`(?s)<[^>]*>`)
	spaces  = regexp.MustCompile(`\s+`)
	hiddens = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)
)

// textOf is what a page says, without its tags.
func textOf(page string) string {
	_, main, found := strings.Cut(page, "<main")
	if !found {
		main = ">" + page
	}
	main, _, _ = strings.Cut(main, "</main>")
	_, main, _ = strings.Cut(main, ">")
	return strings.TrimSpace(html.UnescapeString(spaces.ReplaceAllString(tags.ReplaceAllString(main, " "), " ")))
}

// formOf is the form of a page, as it would be sent: the last one, after those in the head.
func formOf(page string) url.Values {
	form := url.Values{}
	for _, field := range hiddens.FindAllStringSubmatch(page, -1) {
		form.Set(field[1], field[2])
	}
	return form
}

// plan is the form of a dry run, with a reason.
func (b *browser) plan(path, reason string) url.Values {
	b.Helper()
	form := formOf(b.want(http.StatusOK, b.get(path)).body)
	if form.Get("key") == "" {
		b.Fatalf("%s: there is no form", path)
	}
	form.Set("reason", reason)
	return form
}

// log are the lines about a sale, the newest first.
func (r *rig) log(saleID string) []auditlog.Entry {
	r.Helper()
	entries, err := r.Store.AuditLog(r.Ctx(), auditlog.Filter{SaleID: saleID, Limit: 100})
	must(r, err)
	return entries
}

// stored is a sale as Postgres defines it.
func (r *rig) stored(id string) *pipeline.Sale {
	r.Helper()
	sale, err := r.Store.Sale(r.Ctx(), id)
	must(r, err)
	return sale
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
