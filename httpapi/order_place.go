package httpapi

import (
	"github.com/labstack/echo/v4"

	"sluice/pipeline"
	"sluice/pipeline/admission"
)

// placeOrder answers POST /v1/sales/{sale}/orders.
func (a *api) placeOrder(c echo.Context) error {
	if wait := waitPreference(c.Request().Header); wait > 0 {
		return a.placeAndWait(c, wait)
	}
	accepted, err := a.admit(c)
	if err != nil {
		return err
	}
	return sendReceipt(c, &accepted)
}

// admit reads the order and has it decided. An invalid request is refused before any store is asked.
func (a *api) admit(c echo.Context) (receipt, error) {
	request, err := a.readOrder(c)
	if err != nil {
		return receipt{}, err
	}
	sale, err := a.sale(c)
	if err != nil {
		return receipt{}, err
	}
	if err := a.enter(c, sale, request.UserID); err != nil {
		return a.replay(c, sale, request, err)
	}
	if err := a.guard.takeSale(sale.ID); err != nil {
		return receipt{}, err
	}
	decision, err := a.Admission.Admit(c.Request().Context(), sale, request)
	if err != nil {
		return receipt{}, err
	}
	if decision.Result == admission.Accepted || decision.Result == admission.Replayed {
		return receipt{decision.Receipt, sale, request.UserID}, nil
	}
	return receipt{}, rejection(sale, &decision)
}

// replay answers a request that is not let in with the order that its Idempotency-Key has, whatever became of the entry
// ticket since; with the refusal, where there is none. Only then it asks Redis, and only so often, because requests
// without a ticket are to cost no store much.
func (a *api) replay(
	c echo.Context, sale *pipeline.Sale, request pipeline.OrderRequest, refusal error,
) (receipt, error) {
	if request.IdempotencyKey == "" {
		return receipt{}, refusal
	}
	if err := a.guard.takeReplay(request.UserID, isEarly(refusal)); err != nil {
		if isEarly(refusal) { // it says when to come, and then there is no look
			return receipt{}, refusal
		}
		return receipt{}, err // the order may be there: nobody has looked
	}
	request.ReplayOnly = true
	decision, err := a.Admission.Admit(c.Request().Context(), sale, request)
	switch {
	case err != nil:
		return receipt{}, err // it may be there
	case decision.Result == admission.Replayed:
		return receipt{decision.Receipt, sale, request.UserID}, nil
	case decision.Result == admission.KeyReused:
		return receipt{}, rejection(sale, &decision)
	default:
		return receipt{}, refusal
	}
}

// readOrder reads what the buyer asks for: one unit, where there is no body. Errors: *problem, with every field that is
// wrong, and those of the authenticator.
func (a *api) readOrder(c echo.Context) (pipeline.OrderRequest, error) {
	userID, err := a.Auth.Authenticate(c.Request())
	if err != nil {
		return pipeline.OrderRequest{}, err
	}
	key, keyErr := idempotencyKey(c.Request().Header)
	body, err := readJSON(c, maxOrderBytes)
	quantity := 1
	if len(body) > 0 && err == nil {
		quantity, err = decodeQuantity(body)
	}
	if wrong := fieldErrors(keyErr, err); len(wrong) > 0 {
		return pipeline.OrderRequest{}, invalid(wrong...)
	}
	return pipeline.OrderRequest{UserID: userID, Quantity: quantity, IdempotencyKey: key}, err
}
