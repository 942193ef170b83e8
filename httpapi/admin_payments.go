package httpapi

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/payments"
)

// listedPayments is the default of ?limit=.
const listedPayments = 100

func (a *admin) listPayments(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := payments.Filter{
		After:  q.integer("after", 0, math.MaxInt64, 0),
		Limit:  int(q.integer("limit", 1, payments.MaxPayments, listedPayments)),
		SaleID: q.text("sale"), OrderID: q.text("order"), Outcome: payments.Outcome(q.text("outcome")),
	}
	if filter.Outcome != "" && !slices.Contains(payments.StoredOutcomes, filter.Outcome) {
		q.errs = append(q.errs, fieldError{"outcome", "use waiting, paid, refund_due, refunded, refused or repeated"})
	}
	if err := q.wrong(); err != nil {
		return err
	}
	list, err := a.Store.Payments(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "payments", view.NewPayments(list), filter.Limit, func(v *view.Payment) string { return v.ID })
}

// refunded records that a payment, or with partial a part of it, was paid back. Without an id of the refund it is one
// of our own, so that repeating the request changes nothing.
func (a *admin) refunded(c echo.Context) error {
	var r payments.Refund
	fields := map[string]any{
		"refund_id": &r.RefundID, "amount": &r.Amount, "currency": &r.Currency, "partial": &r.Partial, "note": &r.Note,
	}
	record, err := commandOn(c, paymentRow, fields,
		func(ctx context.Context, who string, id int64) (payments.RefundRecord, error) {
			r.Payment, r.Actor = id, who
			if r.RefundID == "" {
				r.RefundID = payments.ManualRefundID(id)
			}
			if err := r.ValidateByHand(); err != nil {
				return payments.RefundRecord{}, err
			}
			return a.Payments.Refunded(ctx, r)
		})
	if err == nil {
		err = refusedByHand(&record)
	}
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, view.NewRefund(&record))
}

func refusedByHand(record *payments.RefundRecord) error {
	switch {
	case record.Refund.Outcome != payments.Refused:
		return nil
	case record.Refund.Reason == payments.ReasonUnknownPayment:
		return newProblem(codeUnknownPayment, record.Refund.Detail)
	}
	return pipeline.Errorf(pipeline.KindConflict, "%s; nothing was changed, and the refund is recorded as refused (%s)",
		record.Refund.Detail, strconv.FormatInt(record.Refund.ID, 10))
}

func paymentRow(c echo.Context) (int64, error) {
	id, err := idParam(c, codeUnknownPayment, "payment")
	if err == nil && id < 1 {
		return 0, newProblem(codeUnknownPayment, "no payment has this id")
	}
	return id, err
}
