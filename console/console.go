package console

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/operator"
	"sluice/pipeline/overview"
	"sluice/pipeline/payments"
	"sluice/pipeline/sales"
	"sluice/webhook"
)

// root is what all paths of the console begin with.
const root = "/console/"

// Operators says who somebody is.
type Operators interface {
	// SignIn returns who a token is of that a person typed, and what a session keeps of it. Errors: *auth.Refused,
	// *auth.TooManyAttempts, KindUnavailable.
	SignIn(r *http.Request, token string) (operator.Identity, operator.Session, error)
	// Continue returns whose session it is, if its token still counts.
	Continue(r *http.Request, s operator.Session) (operator.Identity, error)
}

// Store is what the console reads in Postgres.
type Store interface {
	sales.Source
	lifecycle.OrderList
	Order(ctx context.Context, saleID, orderID string) (pipeline.Order, error)
	WaitlistEntry(ctx context.Context, saleID, orderID string) (pipeline.WaitlistEntry, error)
	AuditLog(ctx context.Context, filter auditlog.Filter) ([]auditlog.Entry, error)
	Letters(ctx context.Context, filter deadletter.Filter) ([]deadletter.Letter, error)
	Letter(ctx context.Context, id int64) (deadletter.Letter, error)
	Payments(ctx context.Context, filter payments.Filter) ([]payments.Payment, error)
	Events(ctx context.Context, filter webhook.EventFilter) ([]webhook.Event, error)
	Endpoints(ctx context.Context) ([]webhook.Endpoint, error)
}

// Deps is what the console works with. All but the last are required.
type Deps struct {
	Operators Operators
	Secret    []byte // that all apis of the installation have, and nobody else: it signs sessions
	Store     Store
	Overview  *overview.Reader
	Publisher *sales.Publisher
	Auditor   *audit.Auditor
	Replayer  *deadletter.Replayer
	Requests  *idempotency.Service // does what is asked for once
	Settings  []Setting            // as this program runs with them, without secrets
	Version   string
	Log       *slog.Logger

	Now func() time.Time // nil: time.Now
}

// Setting is one that the program runs with.
type Setting struct{ Name, Value, Help string }

// Console serves the pages. Close ends those that are live.
type Console struct {
	http.Handler
	close func()
}

// Close ends the pages that are live, so that a server which shuts down need not wait for them. Their browsers come
// back by themselves.
func (c *Console) Close() { c.close() }

type console struct {
	Deps
	sessions  *sessions
	origins   *http.CrossOriginProtection
	templates templates
	streams   chan struct{} // one for each that is open
	closing   chan struct{} // closed when the server shuts down
}

// New returns the console. It panics when a dependency is missing, or a route has no role.
func New(d Deps) *Console {
	if d.Operators == nil || len(d.Secret) == 0 || d.Store == nil || d.Overview == nil || d.Publisher == nil ||
		d.Auditor == nil || d.Replayer == nil || d.Requests == nil || d.Log == nil {
		panic("console: Operators, Secret, Store, Overview, Publisher, Auditor, Replayer, Requests and Log are required")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	c := &console{
		Deps: d, sessions: newSessions(d.Secret, d.Now), origins: http.NewCrossOriginProtection(),
		templates: loadTemplates(),
		streams:   make(chan struct{}, maxStreams), closing: make(chan struct{}),
	}
	mux := http.NewServeMux()
	for _, rt := range c.routes() {
		if rt.role == "" {
			panic("console: no role is stated for " + rt.pattern)
		}
		mux.HandleFunc(rt.pattern, c.guard(rt))
	}
	var once sync.Once
	return &Console{Handler: mux, close: func() { once.Do(func() { close(c.closing) }) }}
}

// open is the role of a route that needs nobody to be signed in.
const open operator.Role = "open"

// route is a page, or a form that is sent.
type route struct {
	pattern string
	role    operator.Role
	handle  func(*request) error
	lasts   bool          // it bounds itself
	limit   time.Duration // 0: pageTimeout
}

func (r *route) within() time.Duration {
	if r.limit > 0 {
		return r.limit
	}
	return pageTimeout
}

// routes are all of them, with what each needs: the same roles as the admin API.
func (c *console) routes() []route {
	return []route{
		{pattern: "GET " + root + "assets/{file}", role: open, handle: c.serveAsset},
		{pattern: "GET " + signInPath, role: open, handle: c.showSignIn},
		{pattern: "POST " + signInPath, role: open, handle: c.signIn},
		{pattern: "POST " + root + "sign-out", role: operator.Read, handle: c.signOut},

		{pattern: "GET " + root + "{$}", role: operator.Read, handle: c.showOverview},
		{pattern: "GET " + root + "live", role: operator.Read, handle: c.streamOverview, lasts: true},
		{pattern: "GET " + root + "workers", role: operator.Read, handle: c.showWorkers},
		{pattern: "GET " + root + "workers/live", role: operator.Read, handle: c.streamWorkers, lasts: true},
		{pattern: "GET " + root + "sales/{sale}", role: operator.Read, handle: c.showSale},
		{pattern: "GET " + root + "sales/{sale}/live", role: operator.Read, handle: c.streamSale, lasts: true},
		{pattern: "GET " + root + "sales/{sale}/waitlist", role: operator.Read, handle: c.showWaitlist},
		{pattern: "GET " + root + "sales/{sale}/audit", role: operator.Read, handle: c.auditSale, limit: auditTimeout},
		{pattern: "GET " + root + "sales/{sale}/change/{verb}", role: operator.Operate, handle: c.planSale},
		{pattern: "POST " + root + "sales/{sale}/change/{verb}", role: operator.Operate, handle: c.changeSale},

		{pattern: "GET " + root + "orders", role: operator.Read, handle: c.findOrders},
		{pattern: "GET " + root + "sales/{sale}/orders/{order}", role: operator.Read, handle: c.showOrder},
		{pattern: "GET " + root + "dead-letters", role: operator.Read, handle: c.listLetters},
		{pattern: "GET " + root + "dead-letters/{id}", role: operator.Read, handle: c.showLetter},
		{pattern: "GET " + root + "dead-letters/{id}/{verb}", role: operator.Operate, handle: c.planLetter},
		{pattern: "POST " + root + "dead-letters/{id}/{verb}", role: operator.Operate, handle: c.resolveLetter},
		{pattern: "GET " + root + "payments", role: operator.Read, handle: c.listPayments},
		{pattern: "GET " + root + "endpoints", role: operator.Read, handle: c.listEndpoints},
		{pattern: "GET " + root + "log", role: operator.Read, handle: c.listLog},
		{pattern: "GET " + root + "settings", role: operator.Read, handle: c.showSettings},
		{pattern: root, role: operator.Read, handle: notFound},
	}
}

func notFound(*request) error {
	return &refusal{http.StatusNotFound, "Not found", "there is no such page"}
}
