package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// placeOrder answers POST /v1/sales/{sale}/orders.
func (a *api) placeOrder(c echo.Context) error {
	if wait := waitPreference(c.Request().Header); wait > 0 {
		return a.placeAndWait(c, wait)
	}
	receipt, err := a.admit(c)
	if err != nil {
		return err
	}
	return sendReceipt(c, &receipt)
}

// admit reads the order and has it decided. An invalid request is refused before any store is asked.
func (a *api) admit(c echo.Context) (admission.Receipt, error) {
	request, err := a.readOrder(c)
	if err != nil {
		return admission.Receipt{}, err
	}
	sale, err := a.sale(c)
	if err != nil {
		return admission.Receipt{}, err
	}
	decision, err := a.Admission.Admit(c.Request().Context(), sale, request)
	if err != nil {
		return admission.Receipt{}, err
	}
	if decision.Result == admission.Accepted || decision.Result == admission.Replayed {
		return decision.Receipt, nil
	}
	return admission.Receipt{}, rejection(sale, &decision)
}

func (a *api) readOrder(c echo.Context) (pipeline.OrderRequest, error) {
	userID, err := a.Auth.Authenticate(c.Request())
	if err != nil {
		return pipeline.OrderRequest{}, err
	}
	key, keyErr := idempotencyKey(c.Request().Header)
	quantity, err := readQuantity(c)
	if wrong := fieldErrors(keyErr, err); len(wrong) > 0 {
		return pipeline.OrderRequest{}, invalid(wrong...)
	}
	return pipeline.OrderRequest{UserID: userID, Quantity: quantity, IdempotencyKey: key}, err
}

// rejection turns every result that is not an accept into its problem.
func rejection(sale *pipeline.Sale, d *admission.Decision) error {
	switch d.Result {
	case admission.AlreadyOrdered:
		return alreadyOrdered(liveOrder, d.Receipt.SaleID, d.Receipt.OrderID)
	case admission.KeyReused:
		return keyReused("this Idempotency-Key belongs to an order with another quantity", d.Receipt.OrderID)
	case admission.SoldOut:
		p := newProblem(codeSoldOut, "not enough units are left")
		p.Waitlist = sale.Waitlist > 0
		return p
	case admission.NotOpen:
		return saleNotOpen(d.OpensAt)
	case admission.Closed:
		return newProblem(codeSaleClosed, "the sale is over")
	case admission.Paused:
		return newProblem(codeSalePaused, "the sale is paused")
	case admission.BacklogFull:
		return newProblem(codeBacklogFull, "too many accepted orders wait to be stored; nothing was ordered")
	case admission.OverLimit:
		return overLimit(d.MaxQuantity, "")
	default:
		return fmt.Errorf("admission returned %q, which has no answer in HTTP", d.Result)
	}
}

const liveOrder = "you have a live order in this sale"

// alreadyOrdered names the order, in the body and in the Location header.
func alreadyOrdered(detail, saleID, orderID string) error {
	p := newProblem(codeAlreadyOrdered, detail)
	p.OrderID, p.location = orderID, orderPath(saleID, orderID)
	return p
}

func keyReused(detail, orderID string) error {
	p := newProblem(codeIdempotencyKeyReused, detail)
	p.OrderID = orderID
	return p
}

// overLimit names the limit of a sale, and what else it demands of a quantity.
func overLimit(limit int, also string) error {
	p := invalid(fieldError{fieldQuantity, fmt.Sprintf("this sale allows 1 to %d units per order%s", limit, also)})
	p.MaxQuantity = limit
	return p
}

func saleNotOpen(opensAt time.Time) error {
	p := newProblem(codeSaleNotOpen, "the sale opens at "+view.Time(opensAt))
	p.OpensAt = view.Time(opensAt)
	return p
}

// sendReceipt answers 202. It depends on the receipt alone, so that a repeated request gets the same bytes.
func sendReceipt(c echo.Context, r *admission.Receipt) error {
	h := c.Response().Header()
	h[headerLocation] = []string{orderPath(r.SaleID, r.OrderID)}
	h[headerRetryAfter] = oneSecond
	return sendJSON(c, http.StatusAccepted, viewReceipt(r))
}

// oneSecond is when to ask for a new order: workers persist within milliseconds.
var oneSecond = []string{"1"}

// orderPath is where an order is found. Neither id needs escaping: both were checked when they were made.
func orderPath(saleID, orderID string) string { return "/v1/sales/" + saleID + "/orders/" + orderID }
