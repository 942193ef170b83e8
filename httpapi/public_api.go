package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/gommon/log"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/entry"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/notification"
	"sluice/pipeline/payments"
	"sluice/pipeline/sales"
	"sluice/pipeline/waitlist"
)

// Admitter decides order requests. It is an interface for the benchmarks, which measure the handlers without Redis.
type Admitter interface {
	Admit(ctx context.Context, sale *pipeline.Sale, req pipeline.OrderRequest) (admission.Decision, error)
}

// Version says what is running.
type Version struct {
	Version string `json:"version"`          // of the release, or "dev"
	Commit  string `json:"commit,omitempty"` // of the source
	Go      string `json:"go"`               // of the compiler
}

// Deps is what the handlers work with. The first nine are required.
type Deps struct {
	Admission Admitter // *admission.Controller
	Sales     *sales.Catalogue
	Stock     *sales.StockReader
	Orders    *lifecycle.Lookup
	Cancel    *lifecycle.Canceller
	Push      *notification.Hub
	Waitlist  *waitlist.Service
	Auth      authenticator
	Log       *slog.Logger

	Payments       *payments.Service // required where there are secrets
	WebhookSecrets *WebhookSecrets   // nil: webhooks of payments are refused

	// Entry gives and checks entry tickets; nil: one without keys, so that sales which need them take no order.
	Entry *entry.Service

	Ready   *Readiness            // what /readyz answers; nil: always ready
	Version Version               // what /version answers
	Metrics prometheus.Registerer // nil: the metrics are kept but not exported
	Now     func() time.Time      // nil: time.Now. What pages show, and how long URLs are valid; orders go by Redis' clock

	// LogOrders logs the usual answers to orders (accepted, refused, overloaded) at info. Without it they are logged at
	// debug, so that a sale does not spend its time on logging; other requests are always logged at info.
	LogOrders bool

	// StreamSecret is what the key that signs the URLs of streams is derived from, the same at all apis of an
	// installation; nil: one of this process, whose URLs no other takes.
	StreamSecret []byte
	// CORSOrigins are the origins whose pages may call this API from a browser; none: no page may.
	CORSOrigins []string

	// Limits bound what one client may do.
	Limits Limits

	// Streams counts the streams of events, so that a server can wait for their end; nil: none does.
	Streams *Streams
	// Heartbeat is how often an idle stream of events sends a comment; default 15 s.
	Heartbeat time.Duration
}

// requestTimeout bounds a request's work in its stores. It is above the two waits that follow each other in one request
// (look up the sale, then admit: 2 s each) and below the server's write timeout, so that the client always gets an
// answer.
const requestTimeout = 5 * time.Second

type api struct {
	Deps
	guard  *guard
	signer *streamSigner
}

// New returns the handler of the public side. It panics when a required dependency is missing, which is a mistake in
// the program, not in its environment.
func New(d Deps) http.Handler {
	if d.Admission == nil || d.Sales == nil || d.Stock == nil || d.Orders == nil || d.Cancel == nil || d.Push == nil ||
		d.Waitlist == nil ||
		d.Auth == nil || d.Log == nil {
		panic("httpapi: Admission, Sales, Stock, Orders, Cancel, Push, Waitlist, Auth and Log are required")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Streams == nil {
		d.Streams = &Streams{}
	}
	if d.Ready == nil {
		d.Ready = NewReadiness(d.Log)
	}
	if d.Heartbeat == 0 {
		d.Heartbeat = defaultHeartbeat
	}
	if d.Entry == nil {
		d.Entry, _ = entry.NewService(entry.Options{}) // what could be wrong is an option
	}
	if d.WebhookSecrets != nil && d.Payments == nil {
		panic("httpapi: WebhookSecrets need Payments")
	}
	signer, err := newStreamSigner(d.StreamSecret)
	if err != nil {
		panic("httpapi: " + err.Error())
	}
	g := newGuard(d.Limits, d.Metrics)
	if g.buyers != nil {
		d.Auth = limitedBuyers{d.Auth, g}
	}
	a := &api{Deps: d, guard: g, signer: signer}
	common := middleware{
		log: d.Log, durations: newDurations(d.Metrics), timeout: requestTimeout, waits: waits,
		logOrders: d.LogOrders, guard: g, addresses: g.addresses,
	}
	e := newEcho()
	e.Use(common.wrap)
	if len(d.CORSOrigins) > 0 {
		e.Use(crossOrigin(d.CORSOrigins))
	}
	a.route(e)
	return e
}

func newEcho() *echo.Echo {
	e := echo.New()
	// Without this echo believes any client's X-Forwarded-For.
	e.IPExtractor = echo.ExtractIPDirect()
	// echo's own logger says nothing that the access log does not say better.
	e.Logger.SetLevel(log.OFF)
	e.Logger.SetOutput(io.Discard)
	return e
}
