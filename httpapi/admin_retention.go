package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline/retention"
)

// listedDrops is the default of ?limit=.
const listedDrops = 100

func (a *admin) showRetention(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := retention.Filter{
		After: q.text("after"), Finished: q.boolean("finished"),
		Limit: int(q.integer("limit", 1, retention.MaxListed, listedDrops)),
	}
	if err := q.wrong(); err != nil {
		return err
	}
	report, err := a.Store.Retention(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, view.NewRetention(&report, filter.Limit))
}
