package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/waitlist"
)

const waitlistRoute = "/v1/sales/:sale/waitlist"

// waitlistView is a buyer's entry in a waitlist.
type waitlistView struct {
	SaleID   string `json:"sale_id"`
	OrderID  string `json:"order_id"` // of the order that is made when the entry is served
	Status   string `json:"status"`   // waiting, ordered
	Position int64  `json:"position,omitempty"`
	Exact    *bool  `json:"position_exact,omitempty"`
	Quantity int    `json:"quantity"`
	JoinedAt string `json:"joined_at"`
}

func viewStanding(sale *pipeline.Sale, s *waitlist.Standing) waitlistView {
	v := waitlistView{
		SaleID: sale.ID, OrderID: s.Entry.OrderID, Status: "ordered", Quantity: s.Entry.Quantity,
		JoinedAt: view.Time(s.Entry.JoinedAt),
	}
	if !s.Ordered {
		exact := waitlist.Exact(sale)
		v.Status, v.Position, v.Exact = string(waitlist.StatusWaiting), s.Position, &exact
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
	if err := a.enter(c, sale, request.UserID); err != nil {
		return err
	}
	d, err := a.Waitlist.Join(c.Request().Context(), sale, request)
	if err != nil {
		return err
	}
	if d.Result != waitlist.Joined {
		return notJoined(sale, &d)
	}
	h := c.Response().Header()
	h[headerLocation] = []string{waitlistPath(sale.ID)}
	return sendJSON(c, http.StatusAccepted, viewStanding(sale, &waitlist.Standing{
		Entry: d.Entry, Position: d.Position,
	}))
}

func waitlistPath(saleID string) string { return "/v1/sales/" + saleID + "/waitlist" }

// notJoined turns every result that does not let the buyer wait into its problem.
func notJoined(sale *pipeline.Sale, d *waitlist.Decision) error {
	switch d.Result {
	case waitlist.AlreadyOrdered:
		return alreadyOrdered(liveOrder, sale.ID, d.OrderID)
	case waitlist.Ended:
		return alreadyOrdered("with this Idempotency-Key you made an order that has ended", sale.ID, d.OrderID)
	case waitlist.AlreadyWaiting:
		return newProblem(codeAlreadyWaiting, fmt.Sprintf("you wait for %d units, at position %d", d.Entry.Quantity,
			d.Position))
	case waitlist.KeyReused:
		if d.OrderID != "" {
			return keyReused("with this Idempotency-Key you have ordered another quantity", d.OrderID)
		}
		return keyReused("with this Idempotency-Key you wait for another quantity", d.Entry.OrderID)
	case waitlist.NoWaitlist:
		return newProblem(codeNoWaitlist, "this sale has no waitlist")
	case waitlist.Full:
		return newProblem(codeWaitlistFull, "the waitlist has as many entries as this sale allows")
	case waitlist.Available:
		return newProblem(codeNotSoldOut, "enough units are left, and no buyer waits for them")
	case waitlist.NotOpen:
		return saleNotOpen(d.OpensAt)
	case waitlist.Closed:
		return newProblem(codeSaleClosed, "the sale is over")
	case waitlist.Paused:
		return newProblem(codeSalePaused, "the sale is paused")
	case waitlist.OverGroupLimit:
		return overGroupLimit(sale, d.Held)
	case waitlist.OverLimit:
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
		h[headerLocation] = []string{orderPath(sale.ID, mine.Entry.OrderID)}
	}
	return sendJSON(c, http.StatusOK, viewStanding(sale, &mine))
}

// leaveWaitlist answers DELETE: 204, or 409 with the order where the entry was served first.
func (a *api) leaveWaitlist(c echo.Context) error {
	userID, sale, err := a.buyerAndSale(c)
	if err != nil {
		return err
	}
	left, err := a.Waitlist.Leave(c.Request().Context(), sale, userID)
	if e, ok := errors.AsType[*pipeline.Error](err); ok && e.Kind == pipeline.KindConflict {
		return alreadyOrdered(e.Message, sale.ID, left.Entry.OrderID)
	}
	if err != nil {
		return notFound(err, codeNotWaiting)
	}
	return c.NoContent(http.StatusNoContent)
}
