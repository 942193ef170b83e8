package httpapi

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// receipt is an accept with its sale.
type receipt struct {
	admission.Receipt
	sale   *pipeline.Sale
	userID string
}

// sendReceipt answers 202. It depends on the receipt alone, so that a repeated request gets the same bytes.
func sendReceipt(c echo.Context, r *receipt) error {
	h := c.Response().Header()
	h[headerLocation] = []string{orderPath(r.SaleID, r.OrderID)}
	h[headerRetryAfter] = oneSecond
	return sendJSON(c, http.StatusAccepted, viewReceipt(r))
}

// oneSecond is when to ask for a new order: workers persist within milliseconds.
var oneSecond = []string{"1"}

// orderPath is where an order is found. Neither id needs escaping: both were checked when they were made.
func orderPath(saleID, orderID string) string { return "/v1/sales/" + saleID + "/orders/" + orderID }

// viewReceipt views an order that was accepted a moment ago.
func viewReceipt(r *receipt) orderView {
	amount, currency := r.sale.PriceOf(r.OrderID, r.Quantity)
	return orderView{
		OrderID: r.OrderID, OrderNumber: strconv.FormatInt(r.Number, 10), SaleID: r.SaleID, Quantity: r.Quantity,
		Status: string(pipeline.StatusQueued), Durability: string(r.Durability), Journaled: &r.Journaled,
		AcceptedAt: view.Time(r.AcceptedAt), Amount: amount, Currency: currency,
	}
}
