package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// ordersRoute is the one route that a flash sale floods.
const ordersRoute = "/v1/sales/:sale/orders"

func (a *api) route(e *echo.Echo) {
	e.POST(ordersRoute, a.placeOrder)
	e.POST(ordersRoute+"/:order/cancel", a.cancelOrder)
	e.POST(streamURLRoute, a.signStream)
	e.POST("/v1/webhooks/payments", a.takePayment)

	e.POST(waitlistRoute, a.joinWaitlist)
	e.DELETE(waitlistRoute, a.leaveWaitlist)

	docs := newViewer("Sluice API", true)
	for path, handler := range map[string]echo.HandlerFunc{
		"/v1/sales":                     a.listSales,
		"/v1/sales/:sale":               a.showSale,
		"/v1/sales/:sale/orders/mine":   a.showMine,
		"/v1/sales/:sale/orders/:order": a.showOrder,
		eventsRoute:                     a.streamOrder,
		waitlistRoute:                   a.showWaitlist,
		"/healthz":                      a.health,
		"/readyz":                       a.ready,
		"/version":                      a.version,
		"/openapi.json":                 newDocument().serve,
		"/docs":                         docs.page.serve,
		"/docs/:file":                   docs.serveFile,
		"/problems":                     listProblems,
		"/problems/:code":               explainProblem,
		"/": index(
			link{"docs", "/docs"}, link{"openapi", "/openapi.json"}, link{"sales", "/v1/sales"}, link{"health", "/healthz"},
			link{"ready", "/readyz"}, link{"version", "/version"},
		),
	} {
		// RFC 9110 asks for HEAD wherever there is GET; net/http leaves the body out.
		e.Match([]string{http.MethodGet, http.MethodHead}, path, handler)
	}
}
