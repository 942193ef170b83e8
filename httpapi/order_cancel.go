package httpapi

import (
	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

// cancelOrder answers the owner of an order; to other buyers the order does not exist. Repeating it changes nothing and
// gets the same answer.
func (a *api) cancelOrder(c echo.Context) error {
	userID, orderID, sale, err := a.buyerOrderAndSale(c)
	if err != nil {
		return err
	}
	order, err := a.Cancel.Cancel(c.Request().Context(), sale, userID, orderID)
	if err != nil {
		return notCancelled(&order, err)
	}
	return sendOrder(c, &order)
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
