package httpapi

import (
	"math"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
)

// listedLetters is the default of ?limit=.
const listedLetters = 100

func (a *admin) listLetters(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := pipeline.LettersFilter{
		After:  q.integer("after", 0, math.MaxInt64, 0),
		Limit:  int(q.integer("limit", 1, pipeline.MaxLetters, listedLetters)),
		SaleID: q.text("sale"), Reason: q.text("reason"), All: q.boolean("all"),
	}
	if err := q.wrong(); err != nil {
		return err
	}
	letters, err := a.Store.Letters(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	list := struct {
		DeadLetters []view.Letter `json:"dead_letters"`
		NextAfter   *string       `json:"next_after"` // for the next page; null on the last one
	}{DeadLetters: view.NewLetters(letters)}
	if n := len(letters); n == filter.Limit {
		list.NextAfter = &list.DeadLetters[n-1].ID
	}
	return sendJSON(c, http.StatusOK, list)
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
	id, who, err := letterAndActor(c)
	if err != nil {
		return err
	}
	var set map[string]string
	if _, err := readFields(c, map[string]any{"set": &set}); err != nil {
		return err
	}
	letter, err := a.Replayer.Replay(c.Request().Context(), id, who, set)
	return sendLetter(c, &letter, err)
}

func (a *admin) discard(c echo.Context) error {
	id, who, err := letterAndActor(c)
	if err != nil {
		return err
	}
	var note string
	if _, err := readFields(c, map[string]any{"note": &note}); err != nil {
		return err
	}
	letter, err := a.Replayer.Discard(c.Request().Context(), id, who, note)
	return sendLetter(c, &letter, err)
}

func sendLetter(c echo.Context, letter *pipeline.Letter, err error) error {
	if err != nil {
		return notFound(err, codeUnknownDeadLetter)
	}
	return sendJSON(c, http.StatusOK, view.NewLetter(letter))
}

func letterAndActor(c echo.Context) (int64, string, error) {
	id, err := letterID(c)
	if err != nil {
		return 0, "", err
	}
	who, err := actor(c.Request().Header)
	return id, who, err
}

// letterID is the letter that the path names. What is no number names none.
func letterID(c echo.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return 0, newProblem(codeUnknownDeadLetter, "no dead letter has this id: ids are numbers")
	}
	return id, nil
}
