package httpapi

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/webhook"
)

// listedEvents is the default of ?limit=.
const listedEvents = 100

func (a *admin) routeEvents(e *echo.Echo) {
	e.Match([]string{http.MethodGet, http.MethodHead}, adminRoot+"events", brief(a.listEvents))
	a.command(e, "endpoints/:id/resend", a.resendEvents)
	a.command(e, "endpoints/:id/replay", a.replayEvents)
}

func (a *admin) listEvents(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := webhook.EventFilter{
		After:  q.integer("after", 0, math.MaxInt64, 0),
		Limit:  int(q.integer("limit", 1, webhook.MaxEvents, listedEvents)),
		SaleID: q.text("sale"), OrderID: q.text("order"), Type: q.text("type"), EventID: q.text("event"),
		Since: q.time("since"), Until: q.time("until"),
	}
	if err := q.wrong(); err != nil {
		return err
	}
	events, err := a.Endpoints.Events(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "events", view.NewEvents(events), filter.Limit, func(v *view.Event) string { return v.Position })
}

// time is zero for a parameter that is not there.
func (q *query) time(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		q.errs = append(q.errs, fieldError{name, "it must be a time of the form 2026-11-27T10:00:00Z (RFC 3339)"})
	}
	return at
}

func (a *admin) resendEvents(c echo.Context) error {
	var r webhook.ResendRequest
	resent, err := commandOn(c, endpointID, map[string]any{
		"event_id": &r.EventID, "from": &r.From, "to": &r.To, "sale_id": &r.SaleID, "order_id": &r.OrderID, "type": &r.Type,
	}, func(ctx context.Context, who string, id int64) (view.Resent, error) {
		resent, err := a.Endpoints.Resend(ctx, who, id, r)
		return view.NewResent(id, resent), err
	})
	if err != nil {
		return notFound(err, codeUnknownEndpoint)
	}
	return sendJSON(c, http.StatusAccepted, resent)
}

func (a *admin) replayEvents(c echo.Context) error {
	var from int64
	e, err := commandOn(c, endpointID, map[string]any{"from": &from},
		func(ctx context.Context, who string, id int64) (webhook.Endpoint, error) {
			return a.Endpoints.Replay(ctx, who, id, from)
		})
	return sendEndpoint(c, &e, err)
}
