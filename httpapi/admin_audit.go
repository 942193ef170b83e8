package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/idempotency"
)

// audit answers with what was found; a finding is no error. A sale that is missing in Redis and is not over is a
// finding: its units are nowhere.
func (a *admin) audit(c echo.Context) error {
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	report, err := a.Auditor.Audit(c.Request().Context(), sale)
	switch {
	case pipeline.KindOf(err) == pipeline.KindNotLoaded:
		return sendJSON(c, http.StatusOK, view.LostSale(sale, messageOf(err)))
	case err != nil:
		return err
	}
	return sendJSON(c, http.StatusOK, view.NewAudit(report))
}

// repair answers with what would be done, or was done.
func (a *admin) repair(c echo.Context) error {
	id, err := pathParam(c, "sale")
	if err != nil {
		return err
	}
	var apply bool
	who, _, err := readCommand(c, map[string]any{"apply": &apply})
	if err != nil {
		return err
	}
	report, err := a.Repairer.Repair(c.Request().Context(), id, who, apply)
	if pipeline.KindOf(err) == pipeline.KindConflict { // nothing could be proved of a sale that changed all the time
		err = idempotency.ForNow(err)
	}
	if err != nil {
		return notFound(err, codeUnknownSale)
	}
	return sendJSON(c, http.StatusOK, view.NewRepair(&report))
}
