package httpapi

import (
	"math"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline/auditlog"
)

// listedEntries is the default of ?limit=.
const listedEntries = 100

func (a *admin) listLog(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := auditlog.Filter{
		Actor: q.text("actor"), Action: q.text("action"), SaleID: q.text("sale"), OrderID: q.text("order"),
		Letter:   q.integer("dead_letter", 1, math.MaxInt64, 0),
		Payment:  q.integer("payment", 1, math.MaxInt64, 0),
		Endpoint: q.integer("endpoint", 1, math.MaxInt64, 0),
		Since:    q.time("since"), Until: q.time("until"),
		After: q.integer("after", 1, math.MaxInt64, 0), Limit: int(q.integer("limit", 1, auditlog.MaxEntries, listedEntries)),
	}
	if err := q.wrong(); err != nil {
		return err
	}
	entries, err := a.Store.AuditLog(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "entries", view.NewLog(entries), filter.Limit, func(v *view.LogEntry) string { return v.ID })
}
