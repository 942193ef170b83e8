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

// waits reports whether a request waits for something to happen: then its handler itself bounds its work in the stores
// and the waiting.
func waits(c echo.Context) bool {
	return c.Path() == eventsRoute || c.Path() == ordersRoute && waitPreference(c.Request().Header) > 0
}

// placeAndWait admits an order and answers once it is in Postgres (201), or, when that takes longer than the client
// wants to wait, with the receipt (202). The order is valid since it was admitted, also when the client does not wait
// to the end, the server stops, or too many wait already.
func (a *api) placeAndWait(c echo.Context, wait time.Duration) error {
	began := time.Now()
	accepted, err := bounded(c, func() (receipt, error) { return a.admit(c) })
	if err != nil {
		return err
	}
	leave, err := a.guard.enterWait(accepted.userID)
	if err != nil {
		return sendReceipt(c, &accepted)
	}
	defer leave()
	watch, err := a.Push.Watch(accepted.SaleID, accepted.OrderID, 0)
	if err != nil {
		return sendReceipt(c, &accepted) // the preference is not applied, and the answer does not claim so
	}
	defer watch.Close()
	until := began.Add(wait)
	if err := extendDeadlines(c, until.Add(answerMargin)); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case order, open := <-watch.Changes():
		if open {
			appliedWait(c.Response().Header(), wait)
			return sendStored(c, accepted.sale, &order)
		}
	case <-timer.C:
		appliedWait(c.Response().Header(), wait)
	case <-c.Request().Context().Done():
	}
	return sendReceipt(c, &accepted)
}

// bounded runs the first part of a waiting request within the time that other requests have for all of their work.
func bounded[T any](c echo.Context, work func() (T, error)) (T, error) {
	request := c.Request()
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	defer cancel()
	c.SetRequest(request.WithContext(ctx))
	defer c.SetRequest(request)
	return work()
}

// extendDeadlines moves this one connection's deadlines, which are made for immediate answers. The body has been read:
// what is read from here on is only whether the client is still there.
func extendDeadlines(c echo.Context, until time.Time) error {
	rc := http.NewResponseController(c.Response())
	if err := rc.SetReadDeadline(until); err != nil {
		return err
	}
	return rc.SetWriteDeadline(until)
}

// sendStored answers 201 with an order that was stored while its buyer waited. A rejected one is a problem: the
// buyer has no order.
func sendStored(c echo.Context, sale *pipeline.Sale, o *pipeline.Order) error {
	location := orderPath(o.SaleID, o.ID)
	if o.Status == pipeline.StatusRejected {
		p := newProblem(codeOrderRejected, "the order was accepted, but could not stand: "+o.Reason)
		p.OrderID, p.OrderStatus, p.location = o.ID, string(o.Status), location
		return p
	}
	body, err := json.Marshal(viewOrder(sale, o))
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h[headerLocation] = []string{location}
	return send(c, http.StatusCreated, jsonType, body)
}
