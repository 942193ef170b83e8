package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
	"sluice/pipeline/waitlist"
)

const eventsRoute = ordersRoute + "/:order/events"

const (
	// maxEventID bounds Last-Event-ID: versions are smallints in Postgres.
	maxEventID = 1<<15 - 1
	// nothingSeen is the version before all others: queued is 0, and waiting, which has no id, before it.
	nothingSeen = -2

	lastEventIDHeader = "Last-Event-Id"
)

// streamOrder answers GET …/orders/{order}/events: the order's status now, and every newer one as it comes, until a
// final one. A client that comes back with a Last-Event-ID gets only what is newer, and 204, which ends the stream for
// good, once there will be nothing newer.
func (a *api) streamOrder(c echo.Context) error {
	userID, orderID, err := a.streamBuyer(c)
	if err != nil {
		return err
	}
	seen, err := lastEventID(c.Request().Header)
	if err != nil {
		return err
	}
	sale, err := bounded(c, func() (*pipeline.Sale, error) { return a.sale(c) })
	if err != nil {
		return err
	}
	// Whose order it is comes before the watch, of which an order has a few.
	order, err := bounded(c, func() (waitlist.Order, error) {
		return a.order(c.Request().Context(), sale, userID, orderID)
	})
	switch {
	case err != nil:
		return notFound(err, codeUnknownOrder)
	case order.Final() && order.Version == seen:
		return c.NoContent(http.StatusNoContent)
	case c.Request().Method == http.MethodHead:
		streamHeader(c.Response().Header())
		return c.NoContent(http.StatusOK)
	}
	one := &stream{sale: sale, order: order, heartbeat: a.Heartbeat}
	if sale.Waitlist > 0 {
		one.look = func(ctx context.Context) (waitlist.Order, error) { return a.order(ctx, sale, userID, orderID) }
	}
	return a.stream(c, one, userID, seen)
}

// stream watches an order and begins the stream. The hub reads an order when it is first watched, so that nothing is
// missed which changed since it was looked at.
func (a *api) stream(c echo.Context, one *stream, userID string, seen int) error {
	leave, err := a.guard.enterWait(userID)
	if err != nil {
		return err
	}
	if one.watch, err = a.Push.Watch(one.sale.ID, one.order.ID, max(one.order.Version, 0)); err != nil {
		leave()
		return err
	}
	one.end = func() {
		one.watch.Close()
		leave()
	}
	if one.order.Version < 0 { // what is waited for has no row: a hint may have come before the watch, and comes once
		one.order, err = bounded(c, func() (waitlist.Order, error) { return one.look(c.Request().Context()) })
		if err != nil {
			one.end()
			return notFound(err, codeUnknownOrder)
		}
	}
	return a.Streams.begin(c, one, seen)
}

// lastEventID is the version that the client has seen, or nothingSeen.
func lastEventID(h http.Header) (int, error) {
	values := h[lastEventIDHeader]
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return nothingSeen, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 16)
	if err != nil || len(values) > 1 || n > maxEventID {
		return 0, fieldError{
			"Last-Event-ID",
			fmt.Sprintf("it must be the id of an event of this stream, 0 to %d; leave it out to begin again", maxEventID),
		}
	}
	return int(n), nil
}
