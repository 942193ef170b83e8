package httpapi

import (
	"github.com/labstack/echo/v4"

	"sluice/pipeline"
	"sluice/pipeline/waitlist"
)

// cancelOrder answers the owner of an order; to other buyers the order does not exist. Repeating it changes nothing and
// gets the same answer.
func (a *api) cancelOrder(c echo.Context) error {
	userID, orderID, sale, err := a.buyerOrderAndSale(c)
	if err != nil {
		return err
	}
	order, err := a.Cancel.Cancel(c.Request().Context(), sale, userID, orderID)
	if pipeline.KindOf(err) == pipeline.KindNotFound && sale.Waitlist > 0 {
		return a.notMade(c, sale, userID, orderID)
	}
	if err != nil {
		return notCancelled(&order, err)
	}
	return sendOrder(c, viewOrder(sale, &order))
}

// notMade answers about an order that did not exist a moment ago: the buyer may wait for it.
func (a *api) notMade(c echo.Context, sale *pipeline.Sale, userID, orderID string) error {
	order, err := a.Waitlist.Order(c.Request().Context(), sale, userID, orderID)
	if err != nil {
		return notFound(err, codeUnknownOrder)
	}
	code, detail := codeOrderQueued, "the order was made at this moment, and can be cancelled now"
	switch order.Status { //nolint:exhaustive // the others are of orders that are made
	case waitlist.StatusWaiting:
		code = codeNotCancellable
		detail = "the order is not made yet: to wait no longer, send DELETE " + waitlistPath(sale.ID)
	case waitlist.StatusLeft:
		code, detail = codeNotCancellable, "you have left the waitlist: the order will not be made"
	}
	p := newProblem(code, detail)
	p.OrderID, p.OrderStatus = order.ID, string(order.Status)
	return p
}

func notCancelled(order *pipeline.Order, err error) error {
	code := codeNotCancellable
	switch pipeline.KindOf(err) {
	case pipeline.KindConflict:
	case pipeline.KindOverloaded:
		code = codeOrderQueued
	default:
		return notFound(err, codeUnknownOrder)
	}
	p := newProblem(code, err.Error())
	p.OrderID, p.OrderStatus = order.ID, string(order.Status)
	return p
}
