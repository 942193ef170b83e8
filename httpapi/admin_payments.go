package httpapi

import (
	"math"
	"slices"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
)

// listedPayments is the default of ?limit=.
const listedPayments = 100

func (a *admin) listPayments(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := pipeline.PaymentsFilter{
		After:  q.integer("after", 0, math.MaxInt64, 0),
		Limit:  int(q.integer("limit", 1, pipeline.MaxPayments, listedPayments)),
		SaleID: q.text("sale"), OrderID: q.text("order"), Outcome: pipeline.PaymentOutcome(q.text("outcome")),
	}
	if filter.Outcome != "" && !slices.Contains(pipeline.StoredOutcomes, filter.Outcome) {
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
