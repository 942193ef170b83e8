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

	"sluice/pipeline"
)

// Admitter decides order requests. *pipeline.Admission is one.
type Admitter interface {
	Admit(ctx context.Context, sale *pipeline.Sale, req pipeline.OrderRequest) (pipeline.Decision, error)
}

// Catalogue knows the sales. *pipeline.Catalogue is one.
type Catalogue interface {
	Get(ctx context.Context, id string) (*pipeline.Sale, error)
	List(now time.Time, limit int) []*pipeline.Sale
}

// Stock tells how many units are left. *pipeline.StockReader is one.
type Stock interface {
	Remaining(ctx context.Context, sale *pipeline.Sale) (int64, error)
}

// Orders finds a buyer's orders. *pipeline.Lookup is one.
type Orders interface {
	Order(ctx context.Context, sale *pipeline.Sale, userID, orderID string) (pipeline.Order, error)
	Mine(ctx context.Context, sale *pipeline.Sale, userID string) (pipeline.Order, error)
}

// Version says what is running.
type Version struct {
	Version string `json:"version"`          // of the release, or "dev"
	Commit  string `json:"commit,omitempty"` // of the source
	Go      string `json:"go"`               // of the compiler
}

// Deps is what the handlers work with. The first six are required.
type Deps struct {
	Admission Admitter
	Sales     Catalogue
	Stock     Stock
	Orders    Orders
	Auth      Authenticator
	Log       *slog.Logger

	Ready   []Check               // what /readyz asks
	Version Version               // what /version answers
	Metrics prometheus.Registerer // nil: the metrics are kept but not exported
	Now     func() time.Time      // nil: time.Now. Only what pages show depends on it; orders go by Redis' clock

	// LogOrders writes the answers of a flood (orders taken, refused, or turned away) at info. Without it they are
	// written at debug, so that a sale does not spend its time on logging; other requests are always at info.
	LogOrders bool
}

// requestTimeout bounds a request's work in its stores. It is above the two waits that follow each other in one request
// (look up the sale, then admit: 2 s each) and below the server's write timeout, so that the client is always told.
const requestTimeout = 5 * time.Second

type api struct {
	Deps
	readiness readiness
	durations durations
}

// New returns the handler of the public side. It panics when a required dependency is missing, or when the metrics are
// registered already: both are mistakes of the program, not of its surroundings.
func New(d Deps) http.Handler {
	if d.Admission == nil || d.Sales == nil || d.Stock == nil || d.Orders == nil || d.Auth == nil || d.Log == nil {
		panic("httpapi: Admission, Sales, Stock, Orders, Auth and Log are required")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	a := &api{Deps: d, readiness: readiness{checks: d.Ready, log: d.Log}, durations: newDurations(d.Metrics)}
	e := newEcho()
	e.Use(a.envelope)
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
