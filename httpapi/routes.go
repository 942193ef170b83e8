package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// ordersRoute is the one route that a flash sale floods.
const ordersRoute = "/v1/sales/:sale/orders"

// The routes that load balancers and the payment provider use on behalf of everybody.
const (
	healthRoute         = "/healthz"
	readyRoute          = "/readyz"
	paymentWebhookRoute = "/v1/webhooks/payments"
)

func isHealth(path string) bool { return path == healthRoute || path == readyRoute }

func (a *api) route(e *echo.Echo) {
	e.POST(ordersRoute, a.placeOrder)
	e.POST(ordersRoute+"/:order/cancel", a.cancelOrder)
	e.POST(streamURLRoute, a.signStream)
	e.POST(paymentWebhookRoute, a.takePayment)

	e.POST(entryTicketRoute, a.giveEntryTicket)
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
		healthRoute:                     a.health,
		readyRoute:                      a.ready,
		"/version":                      a.version,
		"/openapi.json":                 newDocument().serve,
		"/docs":                         docs.page.serve,
		"/docs/:file":                   docs.serveFile,
		"/problems":                     listProblems,
		"/problems/:code":               explainProblem,
		"/": index(
			link{"docs", "/docs"}, link{"openapi", "/openapi.json"}, link{"sales", "/v1/sales"}, link{"health", healthRoute},
			link{"ready", readyRoute}, link{"version", "/version"},
		),
	} {
		// RFC 9110 asks for HEAD wherever there is GET; net/http leaves the body out.
		e.Match([]string{http.MethodGet, http.MethodHead}, path, handler)
	}
}
