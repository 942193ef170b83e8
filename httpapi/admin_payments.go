package httpapi

import (
	"math"
	"slices"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
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
		q.errs = append(q.errs, fieldError{"outcome", "use waiting, paid, refund_due, refused or repeated"})
	}
	if err := q.wrong(); err != nil {
		return err
	}
	payments, err := a.Store.Payments(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "payments", view.NewPayments(payments), filter.Limit, func(v *view.Payment) string { return v.ID })
}
