package httpapi

import (
	"context"
	"math"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline/deadletter"
)

// listedLetters is the default of ?limit=.
const listedLetters = 100

func (a *admin) listLetters(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := deadletter.Filter{
		After:  q.integer("after", 0, math.MaxInt64, 0),
		Limit:  int(q.integer("limit", 1, deadletter.MaxLetters, listedLetters)),
		SaleID: q.text("sale"), Reason: q.text("reason"), All: q.boolean("all"),
	}
	if err := q.wrong(); err != nil {
		return err
	}
	letters, err := a.Store.Letters(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "dead_letters", view.NewLetters(letters), filter.Limit, func(v *view.Letter) string { return v.ID })
}

func (a *admin) showLetter(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	letter, err := a.Store.Letter(c.Request().Context(), id)
	return sendLetter(c, &letter, err)
}

func (a *admin) replay(c echo.Context) error {
	var set map[string]string
	letter, err := commandOn(c, letterID, map[string]any{"set": &set},
		func(ctx context.Context, who string, id int64) (deadletter.Letter, error) {
			return a.Replayer.Replay(ctx, id, who, set)
		})
	return sendLetter(c, &letter, err)
}

func (a *admin) discard(c echo.Context) error {
	var note string
	letter, err := commandOn(c, letterID, map[string]any{"note": &note},
		func(ctx context.Context, who string, id int64) (deadletter.Letter, error) {
			return a.Replayer.Discard(ctx, id, who, note)
		})
	return sendLetter(c, &letter, err)
}

func sendLetter(c echo.Context, letter *deadletter.Letter, err error) error {
	if err != nil {
		return notFound(err, codeUnknownDeadLetter)
	}
	return sendJSON(c, http.StatusOK, view.NewLetter(letter))
}

func letterID(c echo.Context) (int64, error) { return idParam(c, codeUnknownDeadLetter, "dead letter") }
