package httpapi

import (
	"math"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline/erasure"
)

// listedErasures is the default of ?limit=.
const listedErasures = 100

func (a *admin) listErasures(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	after := q.integer("after", 1, math.MaxInt64, 0)
	limit := int(q.integer("limit", 1, erasure.MaxListed, listedErasures))
	if err := q.wrong(); err != nil {
		return err
	}
	list, err := a.Store.Erasures(c.Request().Context(), after, limit)
	if err != nil {
		return err
	}
	return sendPage(c, "erasures", view.NewErasures(list), limit, func(v *view.Erasure) string { return v.ID })
}

// eraseBuyer takes the buyer's id in the body: paths are in logs.
func (a *admin) eraseBuyer(c echo.Context) error {
	var user string
	who, _, err := readCommand(c, map[string]any{"user_id": &user})
	if err != nil {
		return err
	}
	e, err := a.Store.RequestErasure(c.Request().Context(), user, who)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusAccepted, view.NewErasure(&e))
}
