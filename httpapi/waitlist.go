package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
)

const waitlistRoute = "/v1/sales/:sale/waitlist"

// waitlistView is a buyer's entry in a waitlist.
type waitlistView struct {
	SaleID   string `json:"sale_id"`
	OrderID  string `json:"order_id"` // of the order that is made when the entry is served
	Status   string `json:"status"`   // waiting, ordered
	Position int64  `json:"position,omitempty"`
	Quantity int    `json:"quantity"`
	JoinedAt string `json:"joined_at"`
}

func viewWaitlistEntry(s *pipeline.Stay, position int64, ordered bool) waitlistView {
	v := waitlistView{
		SaleID: s.SaleID, OrderID: s.OrderID, Status: "waiting", Position: position, Quantity: s.Quantity, JoinedAt: view.Time(s.JoinedAt),
	}
	if ordered {
		v.Status, v.Position = "ordered", 0
	}
	return v
}

// joinWaitlist answers POST: 202 for a buyer who waits, since now or since before.
func (a *api) joinWaitlist(c echo.Context) error {
	request, err := a.readOrder(c)
	if err != nil {
		return err
	}
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	d, err := a.Waitlist.Join(c.Request().Context(), sale, request)
	if err != nil {
		return err
	}
	if d.Result != pipeline.WaitJoined {
		return notJoined(sale, &d)
	}
	h := c.Response().Header()
	h[headerLocation] = []string{waitlistPath(sale.ID)}
	return sendJSON(c, http.StatusAccepted, viewWaitlistEntry(&d.Stay, d.Position, false))
}

func waitlistPath(saleID string) string { return "/v1/sales/" + saleID + "/waitlist" }

// notJoined turns every result that does not let the buyer wait into its problem.
func notJoined(sale *pipeline.Sale, d *pipeline.WaitDecision) error {
	switch d.Result {
	case pipeline.WaitAlreadyOrdered:
		return alreadyOrdered(liveOrder, sale.ID, d.OrderID)
	case pipeline.WaitAlreadyWaiting:
		return newProblem(codeAlreadyWaiting, fmt.Sprintf("you wait for %d units, at position %d", d.Stay.Quantity, d.Position))
	case pipeline.WaitKeyReused:
		return keyReused("with this Idempotency-Key you wait for another quantity", d.Stay.OrderID)
	case pipeline.WaitNoWaitlist:
		return newProblem(codeNoWaitlist, "this sale has no waitlist")
	case pipeline.WaitFull:
		return newProblem(codeWaitlistFull, "the waitlist has as many entries as this sale allows")
	case pipeline.WaitAvailable:
		return newProblem(codeNotSoldOut, "enough units are left, and no buyer waits for them")
	case pipeline.WaitNotOpen:
		return saleNotOpen(d.OpensAt)
	case pipeline.WaitClosed:
		return newProblem(codeSaleClosed, "the sale is over")
	case pipeline.WaitPaused:
		return newProblem(codeSalePaused, "the sale is paused")
	case pipeline.WaitOverLimit:
		return overLimit(d.MaxQuantity, ", and no more than it has")
	default:
		return fmt.Errorf("the waitlist returned %q, which has no answer in HTTP", d.Result)
	}
}

// showWaitlist answers GET with the buyer's own entry; once it was served, with the order that was made.
func (a *api) showWaitlist(c echo.Context) error {
	userID, sale, err := a.buyerAndSale(c)
	if err != nil {
		return err
	}
	mine, err := a.Waitlist.Mine(c.Request().Context(), sale, userID)
	if err != nil {
		return notFound(err, codeNotWaiting)
	}
	h := c.Response().Header()
	if mine.Ordered {
		h[headerLocation] = []string{orderPath(sale.ID, mine.Stay.OrderID)}
	}
	return sendJSON(c, http.StatusOK, viewWaitlistEntry(&mine.Stay, mine.Position, mine.Ordered))
}

// leaveWaitlist answers DELETE: 204, or 409 with the order where the entry was served first.
func (a *api) leaveWaitlist(c echo.Context) error {
	userID, sale, err := a.buyerAndSale(c)
	if err != nil {
		return err
	}
	left, err := a.Waitlist.Leave(c.Request().Context(), sale, userID)
	if e, ok := errors.AsType[*pipeline.Error](err); ok && e.Kind == pipeline.KindConflict {
		return alreadyOrdered(e.Message, sale.ID, left.Stay.OrderID)
	}
	if err != nil {
		return notFound(err, codeNotWaiting)
	}
	return c.NoContent(http.StatusNoContent)
}
