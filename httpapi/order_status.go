package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/waitlist"
)

// orderView is an order as its buyer sees it. Times that have not come are left out.
type orderView struct {
	OrderID     string  `json:"order_id"`
	OrderNumber string  `json:"order_number"` // a string: it has more digits than a JavaScript number
	SaleID      string  `json:"sale_id"`
	Quantity    int     `json:"quantity"`
	Amount      int64   `json:"amount,omitempty"` // what it costs, in minor units of currency
	Currency    string  `json:"currency,omitempty"`
	Status      string  `json:"status"`
	Durability  string  `json:"durability,omitempty"` // of the accept; in receipts only
	Reason      string  `json:"reason,omitempty"`
	Journaled   *bool   `json:"journaled,omitempty"`   // in receipts only
	AcceptedAt  string  `json:"accepted_at,omitempty"` // not while it is only waited for
	PersistedAt *string `json:"persisted_at,omitempty"`
	PayBy       *string `json:"pay_by,omitempty"`
	PaidAt      *string `json:"paid_at,omitempty"`
	ClosedAt    *string `json:"closed_at,omitempty"`

	// Of an order that its buyer waits for, or has waited for in vain.
	JoinedAt      *string `json:"joined_at,omitempty"`
	Position      int64   `json:"position,omitempty"`
	PositionExact *bool   `json:"position_exact,omitempty"`
}

// viewOrder views an order of a sale. What it costs never changes.
func viewOrder(sale *pipeline.Sale, o *pipeline.Order) orderView {
	amount, currency := sale.PriceOf(o.ID, o.Quantity)
	return orderView{
		Amount: amount, Currency: currency,
		OrderID: o.ID, OrderNumber: strconv.FormatInt(o.Number, 10), SaleID: o.SaleID, Quantity: o.Quantity,
		Status: string(o.Status), Reason: o.Reason, AcceptedAt: view.Time(o.AcceptedAt),
		PersistedAt: view.TimeOrNil(o.PersistedAt), PayBy: view.TimeOrNil(o.PayBy),
		PaidAt: view.TimeOrNil(o.PaidAt), ClosedAt: view.TimeOrNil(o.ClosedAt),
	}
}

// viewTracked views an order of a sale, or what will become one.
func viewTracked(sale *pipeline.Sale, o *waitlist.Order) orderView {
	v := viewOrder(sale, &o.Order)
	v.JoinedAt = view.TimeOrNil(o.JoinedAt)
	if !o.JoinedAt.IsZero() {
		v.AcceptedAt = ""
	}
	if o.Position > 0 {
		v.Position, v.PositionExact = o.Position, &o.Exact
	}
	return v
}

// order finds a buyer's order, or what the buyer waits for under its id.
func (a *api) order(ctx context.Context, sale *pipeline.Sale, userID, orderID string) (waitlist.Order, error) {
	order, err := a.Orders.Order(ctx, sale, userID, orderID)
	if sale.Waitlist == 0 || pipeline.KindOf(err) != pipeline.KindNotFound {
		return waitlist.Order{Order: order}, err
	}
	return a.Waitlist.Order(ctx, sale, userID, orderID)
}

// showOrder answers the owner of an order; to other buyers the order does not exist.
func (a *api) showOrder(c echo.Context) error {
	userID, orderID, sale, err := a.buyerOrderAndSale(c)
	if err != nil {
		return err
	}
	order, err := a.order(c.Request().Context(), sale, userID, orderID)
	if err != nil {
		return notFound(err, codeUnknownOrder)
	}
	return sendOrder(c, viewTracked(sale, &order))
}

func (a *api) showMine(c echo.Context) error {
	userID, sale, err := a.buyerAndSale(c)
	if err != nil {
		return err
	}
	made, err := a.Orders.Mine(c.Request().Context(), sale, userID)
	order := waitlist.Order{Order: made}
	ended := err == nil && !made.Status.Live() || pipeline.KindOf(err) == pipeline.KindNotFound
	if sale.Waitlist > 0 && ended { // the buyer may wait for another one
		order, err = a.Waitlist.MyOrder(c.Request().Context(), sale, userID)
	}
	if err != nil {
		return notFound(err, codeUnknownOrder)
	}
	return sendOrder(c, viewTracked(sale, &order))
}

// buyerAndOrder returns the buyer, and the order that the path names. Neither needs a store.
func (a *api) buyerAndOrder(c echo.Context) (userID, orderID string, err error) {
	if userID, err = a.Auth.Authenticate(c.Request()); err != nil {
		return "", "", err
	}
	orderID, err = orderParam(c)
	return userID, orderID, err
}

// buyerOrderAndSale is buyerAndOrder, and then the sale that the path names.
func (a *api) buyerOrderAndSale(c echo.Context) (userID, orderID string, sale *pipeline.Sale, err error) {
	if userID, orderID, err = a.buyerAndOrder(c); err == nil {
		sale, err = a.sale(c)
	}
	return userID, orderID, sale, err
}

func (a *api) buyerAndSale(c echo.Context) (userID string, sale *pipeline.Sale, err error) {
	if userID, err = a.Auth.Authenticate(c.Request()); err != nil {
		return "", nil, err
	}
	sale, err = a.sale(c)
	return userID, sale, err
}

// orderParam returns the order id of the path in the form that the stores use. What is not a UUID is no order of ours.
func orderParam(c echo.Context) (string, error) {
	if strings.Contains(c.Param("order"), "/") {
		return "", noRoute() // echo gives the last parameter all the rest of a path
	}
	text, err := pathParam(c, "order")
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return "", newProblem(codeUnknownOrder, "order ids are UUIDs; this is none")
	}
	return id.String(), nil
}

// sendOrder answers with an order, or with 304 to a client that has this very state of it already.
func sendOrder(c echo.Context, v orderView) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tag := `"` + strconv.FormatUint(xxhash.Sum64(body), 16) + `"`
	h := c.Response().Header()
	h[headerETag] = []string{tag}
	h[headerCacheControl] = privateCache
	if matches(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return send(c, http.StatusOK, jsonType, body)
}

// matches compares weakly (RFC 9110, section 13.1.2): W/ in front of a tag does not matter here.
func matches(headers []string, tag string) bool {
	for _, header := range headers {
		for candidate := range strings.SplitSeq(header, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == tag || candidate == "*" {
				return true
			}
		}
	}
	return false
}
