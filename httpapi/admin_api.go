package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/pipeline"
	"sluice/pipeline/audit"
	"sluice/pipeline/auditlog"
	"sluice/pipeline/deadletter"
	"sluice/pipeline/erasure"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
	"sluice/pipeline/recovery"
	"sluice/pipeline/retention"
	"sluice/pipeline/sales"
	"sluice/webhook"
)

// operatorStore is what the admin side reads in Postgres.
type operatorStore interface {
	sales.Source
	lifecycle.OrderList
	AuditLog(ctx context.Context, filter auditlog.Filter) ([]auditlog.Entry, error)
	RequestErasure(ctx context.Context, userID, actor string) (erasure.Erasure, error)
	Erasures(ctx context.Context, before int64, limit int) ([]erasure.Erasure, error)
	Retention(ctx context.Context, filter retention.Filter) (retention.Report, error)
	Letters(ctx context.Context, filter deadletter.Filter) ([]deadletter.Letter, error)
	Letter(ctx context.Context, id int64) (deadletter.Letter, error)
	Payments(ctx context.Context, filter payments.Filter) ([]payments.Payment, error)
}

// AdminDeps is what the admin side works with. The last three are optional.
type AdminDeps struct {
	Store     operatorStore // *db.Store; an interface because handlers know nothing of package db
	Replayer  *deadletter.Replayer
	Payments  *payments.Service // refunds
	Returner  *lifecycle.Returner
	Extender  *lifecycle.Extender
	Publisher *sales.Publisher
	Stock     *sales.StockReader
	Auditor   *audit.Auditor
	Repairer  *recovery.Repairer
	Endpoints *webhook.EndpointService
	Requests  *idempotency.Service // answers repeated requests
	Log       *slog.Logger

	Operators operators         // who requests come from
	Addresses *limits.Addresses // and from where; nil: nobody's X-Forwarded-For is believed

	Entry *entry.Service // that of the public side; nil: it gives no entry tickets

	Metrics prometheus.Registerer // nil: the metrics are kept but not exported
	Now     func() time.Time      // nil: time.Now
}

const (
	// adminTimeout bounds a request's work in its stores: a replay asks them some ten times, one after the other.
	adminTimeout = 8 * time.Second
	// auditTimeout is longer: an audit, and a repair with its two, takes as long as it needs to see the sale undisturbed,
	// and then reports what it saw. It is below the write timeout of the server that the handler is mounted on.
	auditTimeout = 25 * time.Second
)

// adminRoot is what all paths of the admin side begin with, but for the explanations of problems.
const adminRoot = "/admin/v1/"

type admin struct{ AdminDeps }

// NewAdmin returns the handler of the admin side. It serves /admin/v1/… to requests with a token whose role allows it;
// what documents it, which is no secret, to all: /, /admin/v1/docs, /admin/v1/openapi.json and /problems/…. It panics
// when a required dependency is missing, or a route has no role.
func NewAdmin(d AdminDeps) http.Handler {
	if d.Store == nil || d.Replayer == nil || d.Publisher == nil || d.Stock == nil || d.Auditor == nil ||
		d.Repairer == nil || d.Endpoints == nil || d.Log == nil ||
		d.Payments == nil || d.Returner == nil || d.Extender == nil || d.Requests == nil || d.Operators == nil {
		panic("httpapi: Store, Replayer, Payments, Returner, Extender, Publisher, Stock, Auditor, Repairer, Endpoints, " +
			"Requests, Operators and Log are required")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Addresses == nil {
		d.Addresses = limits.NewAddresses(nil)
	}
	a := &admin{d}
	common := middleware{
		log: d.Log, durations: newDurations(d.Metrics), timeout: auditTimeout, waits: takesLong, addresses: d.Addresses,
	}
	e := newEcho()
	e.Use(common.wrap, a.authenticate)
	a.route(e)
	a.routeEndpoints(e)
	a.routeEvents(e)
	a.routeOrderList(e)
	a.routeProfiles(e)
	requireRoles(e)
	return e
}

func (a *admin) route(e *echo.Echo) {
	docs := newViewer("Sluice API for operators", false)
	for path, handler := range map[string]echo.HandlerFunc{
		"docs":              docs.page.serve,
		"docs/:file":        docs.serveFile,
		"dead-letters":      brief(a.listLetters),
		"dead-letters/:id":  brief(a.showLetter),
		"payments":          brief(a.listPayments),
		"sales":             brief(a.listSales),
		"sales/:sale":       brief(a.showSale),
		"sales/:sale/audit": a.audit,
		"log":               brief(a.listLog),
		"retention":         brief(a.showRetention),
		"erasures":          brief(a.listErasures),
		"openapi.json":      newAdminDocument().serve,
	} {
		e.Match([]string{http.MethodGet, http.MethodHead}, adminRoot+path, handler)
	}
	for path, handler := range map[string]echo.HandlerFunc{
		"dead-letters/:id/replay":  a.replay,
		"dead-letters/:id/discard": a.discard,
		"sales":                    a.createSale,
		"erasures":                 a.eraseBuyer,
		"payments/:id/refunded":    a.refunded,
		"sales/:sale/extend":       a.extendSale,
		"sales/:sale/restock":      a.restock,
		"sales/:sale/reduce":       a.reduce,
		"sales/:sale/reschedule":   a.reschedule,
		"sales/:sale/pause":        a.setState(pipeline.SalePaused),
		"sales/:sale/resume":       a.setState(pipeline.SaleActive),
		"sales/:sale/close":        a.setState(pipeline.SaleClosed),
	} {
		a.command(e, path, handler)
	}
	for verb, handler := range map[string]echo.HandlerFunc{"return": a.returnOrder, "extend": a.extendOrder} {
		a.command(e, "sales/:sale/orders/:order/"+verb, handler)
	}
	e.PATCH(adminRoot+"sales/:sale", brief(a.once(a.editSale)))
	e.POST(adminRoot+"sales/:sale/repair", a.once(a.repair))
	for path, handler := range map[string]echo.HandlerFunc{
		"/problems/:code": explainProblem,
		"/problems":       listProblems,
		"/": index(
			link{"console", "/console/"}, link{"docs", adminRoot + "docs"}, link{"openapi", adminRoot + "openapi.json"},
			link{"health", "/healthz"}, link{"ready", "/readyz"}, link{"metrics", "/metrics"},
		),
	} {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, handler)
	}
}

// brief bounds a handler that needs less time than an audit.
func brief(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), adminTimeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		return next(c)
	}
}

// idParam is the number that the path names. What is no number names nothing.
func idParam(c echo.Context, unknown problemCode, what string) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return 0, newProblem(unknown, "no "+what+" has this id: ids are numbers")
	}
	return id, nil
}

// readCommand reads what every command of an operator has: who gives it, and the fields of its body. It returns the
// names of those that were there.
func readCommand(c echo.Context, fields map[string]any) (who string, given map[string]bool, err error) {
	given, err = readFields(c, fields)
	return actor(c), given, err
}

// commandOn runs a command on the one thing that the path names.
func commandOn[T any](
	c echo.Context, idOf func(echo.Context) (int64, error), fields map[string]any,
	run func(ctx context.Context, actor string, id int64) (T, error),
) (result T, err error) {
	id, err := idOf(c)
	if err != nil {
		return result, err
	}
	who, _, err := readCommand(c, fields)
	if err != nil {
		return result, err
	}
	return run(c.Request().Context(), who, id)
}

// sendPage answers with a page of a list; next_after is null on the last one.
func sendPage[V any](c echo.Context, name string, views []V, limit int, id func(*V) string) error {
	var next *string
	if n := len(views); n == limit {
		last := id(&views[n-1])
		next = &last
	}
	return sendJSON(c, http.StatusOK, map[string]any{name: views, "next_after": next})
}

// isOpen reports whether a path needs no token: it documents the API, and tells nothing of this installation.
func isOpen(path string) bool {
	return path == "/" || path == "/problems" || strings.HasPrefix(path, "/problems/") ||
		path == adminRoot+"openapi.json" || path == adminRoot+"docs" || strings.HasPrefix(path, adminRoot+"docs/")
}
