package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

// answerMargin is what an answer has to get to its client once the waiting is over.
const answerMargin = 10 * time.Second

// waits reports whether a request waits for something to happen: then its handler bounds its work in the stores, and
// the waiting by itself.
func waits(c echo.Context) bool {
	return c.Path() == eventsRoute || c.Path() == ordersRoute && waitPreference(c.Request().Header) > 0
}

// placeAndWait admits an order and answers once it is in Postgres (201), or, when that takes longer than the client wants to
// wait, with the receipt (202). A client that does not wait to the end, a server that stops and one that has too many waiting
// already change nothing about the order: it stands since it was admitted.
func (a *api) placeAndWait(c echo.Context, wait time.Duration) error {
	began := time.Now()
	receipt, err := bounded(c, func() (pipeline.Receipt, error) { return a.admit(c) })
	if err != nil {
		return err
	}
	watch, err := a.Push.Watch(receipt.SaleID, receipt.OrderID, 0)
	if err != nil {
		return sendReceipt(c, &receipt) // the preference is not followed, and not said to be
	}
	defer watch.Close()
	until := began.Add(wait)
	if err := holdOpen(c, until.Add(answerMargin)); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case order, open := <-watch.Changes():
		if open {
			appliedWait(c.Response().Header(), wait)
			return sendStored(c, &order)
		}
	case <-timer.C:
		appliedWait(c.Response().Header(), wait)
	case <-c.Request().Context().Done():
	}
	return sendReceipt(c, &receipt)
}

// bounded gives the work that a waiting request begins with the time that other requests have for all of theirs.
func bounded[T any](c echo.Context, work func() (T, error)) (T, error) {
	request := c.Request()
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	defer cancel()
	c.SetRequest(request.WithContext(ctx))
	defer c.SetRequest(request)
	return work()
}

// holdOpen moves this one connection's deadlines, which are made for answers that are given at once. The body is read by
// now: what is read from here on is only whether the client is still there.
func holdOpen(c echo.Context, until time.Time) error {
	rc := http.NewResponseController(c.Response())
	if err := rc.SetReadDeadline(until); err != nil {
		return err
	}
	return rc.SetWriteDeadline(until)
}

// sendStored answers 201 with an order that was stored while its buyer waited. One that could not stand is a problem: the
// buyer has no order.
func sendStored(c echo.Context, o *pipeline.Order) error {
	location := orderPath(o.SaleID, o.ID)
	if o.Status == pipeline.StatusRejected {
		p := newProblem(codeOrderRejected, "the order was accepted, but could not stand: "+o.Reason)
		p.OrderID, p.OrderStatus, p.location = o.ID, string(o.Status), location
		return p
	}
	body, err := json.Marshal(viewOrder(o))
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h[headerLocation] = []string{location}
	return send(c, http.StatusCreated, jsonType, body)
}
