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
	// Watch first, then read: what changes between the two is sent.
	watch, err := a.Push.Watch(sale.ID, orderID, 0)
	if err != nil {
		return err
	}
	order, err := bounded(c, func() (waitlist.Order, error) {
		return a.order(c.Request().Context(), sale, userID, orderID)
	})
	if err == nil && !(order.Final() && order.Version == seen) && c.Request().Method != http.MethodHead {
		one := &stream{watch: watch, sale: sale, order: order, heartbeat: a.Heartbeat}
		if sale.Waitlist > 0 {
			one.look = func(ctx context.Context) (waitlist.Order, error) { return a.order(ctx, sale, userID, orderID) }
		}
		return a.Streams.begin(c, one, seen)
	}
	watch.Close()
	if err != nil {
		return notFound(err, codeUnknownOrder)
	}
	if order.Version == seen {
		return c.NoContent(http.StatusNoContent)
	}
	streamHeader(c.Response().Header())
	return c.NoContent(http.StatusOK)
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
