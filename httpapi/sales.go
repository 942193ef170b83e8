package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
)

const (
	maxListedSales = 100 // per answer, and the default of ?limit=: more is a catalogue, not a list of flash sales

	// listedStockTimeout bounds the reading of all stocks of a list. The list is worth more than its numbers: what
	// is not known by then is null.
	listedStockTimeout = time.Second
)

// saleView is a sale as buyers see it.
type saleView struct {
	ID                   string `json:"id"`
	Title                string `json:"title"`
	State                string `json:"state"`
	OpensAt              string `json:"opens_at"`
	ClosesAt             string `json:"closes_at"`
	Total                int64  `json:"total"`
	Remaining            *int64 `json:"remaining"` // null when Redis does not answer; never 0 instead
	MaxQuantity          int    `json:"max_quantity"`
	PaymentWindowSeconds int64  `json:"payment_window_seconds"`
	Waitlist             bool   `json:"waitlist"`             // whether one may wait once it is sold out
	UnitPrice            int64  `json:"unit_price,omitempty"` // minor units of currency
	Currency             string `json:"currency,omitempty"`
	LimitGroup           string `json:"limit_group,omitempty"`
	GroupLimit           int    `json:"group_limit,omitempty"` // units of a buyer in all sales of the group
	EntryTicket          bool   `json:"entry_ticket"`          // whether an order needs one
	EntrySpreadSeconds   int64  `json:"entry_spread_seconds,omitempty"`
}

// sale returns the sale that the path names, or the problem that says why there is none.
func (a *api) sale(c echo.Context) (*pipeline.Sale, error) {
	id, err := pathParam(c, "sale")
	if err != nil {
		return nil, err
	}
	sale, err := a.Sales.Get(c.Request().Context(), id)
	return sale, notFound(err, codeUnknownSale)
}

// pathParam returns a path parameter as the client meant it. echo leaves it escaped when the path has escapes that
// matter (such as %2F).
func pathParam(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", noRoute()
	}
	return value, nil
}

func (a *api) showSale(c echo.Context) error {
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	remaining, err := a.Stock.Remaining(c.Request().Context(), sale)
	view := a.view(sale, remaining, err == nil)
	c.Response().Header()[headerCacheControl] = briefly
	return sendJSON(c, http.StatusOK, view)
}

func (a *api) listSales(c echo.Context) error {
	limit, err := limitParam(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), listedStockTimeout)
	defer cancel()
	views, answering := []saleView{}, true
	for _, sale := range a.Sales.List(a.Now(), limit) {
		var remaining int64
		var err error
		if answering {
			remaining, err = a.Stock.Remaining(ctx, sale)
			// Once Redis has failed to answer, the other sales would only wait in vain as well.
			answering = pipeline.KindOf(err) != pipeline.KindUnavailable
		}
		views = append(views, a.view(sale, remaining, answering && err == nil))
	}
	c.Response().Header()[headerCacheControl] = briefly
	return sendJSON(c, http.StatusOK, struct {
		Sales []saleView `json:"sales"`
	}{views})
}

func (a *api) view(s *pipeline.Sale, remaining int64, known bool) saleView {
	price, currency := s.PriceOf("", 1)
	v := saleView{
		ID: s.ID, Title: s.Title, State: s.Phase(a.Now()),
		OpensAt: view.Time(s.OpensAt), ClosesAt: view.Time(s.ClosesAt),
		Total: s.Total, MaxQuantity: s.MaxQuantity,
		PaymentWindowSeconds: int64(s.PaymentWindow / time.Second), Waitlist: s.Waitlist > 0, UnitPrice: price,
		Currency: currency, LimitGroup: s.LimitGroup, GroupLimit: s.GroupLimit,
	}
	if v.EntryTicket = s.EntryTicket; v.EntryTicket {
		v.EntrySpreadSeconds = int64(s.EntrySpread / time.Second)
	}
	if known {
		remaining = min(remaining, s.Total) // the definition may be a second behind a restock
		v.Remaining = &remaining
	}
	if known && remaining == 0 && v.State == "open" {
		v.State = "sold_out"
	}
	return v
}

// limitParam reads ?limit=. Other parameters are ignored, so that a link with a tracker's parameters works.
func limitParam(query string) (int, error) {
	if query == "" {
		return maxListedSales, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, fieldError{"query", "it is not valid"}
	}
	given, ok := values["limit"]
	if !ok {
		return maxListedSales, nil
	}
	n, err := strconv.Atoi(given[0])
	if err != nil || len(given) > 1 || n < 1 || n > maxListedSales {
		return 0, fieldError{"limit", "it must be one integer from 1 to " + strconv.Itoa(maxListedSales)}
	}
	return n, nil
}
