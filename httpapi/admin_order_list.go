package httpapi

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline/lifecycle"
	"sluice/pipeline/payments"
)

const (
	// listedOrders is the default of ?limit=.
	listedOrders = 100
	// exportTimeout bounds an export: ten million orders to a client that reads as fast as they come.
	exportTimeout = 15 * time.Minute
	// exportPageTimeout bounds what one page of it may take in Postgres, and again on its way to the client.
	exportPageTimeout = 30 * time.Second
	// exportBuffer holds about a page.
	exportBuffer = 512 << 10

	ordersPath = adminRoot + "orders"
	exportPath = ordersPath + "/export"
)

var exportTypes = map[view.ExportFormat][]string{
	view.CSV: {"text/csv; charset=utf-8; header=present"}, view.JSONLines: {"application/jsonl"},
}

func (a *admin) routeOrderList(e *echo.Echo) {
	e.Match([]string{http.MethodGet, http.MethodHead}, ordersPath, brief(a.listOrders))
	e.GET(exportPath, a.exportOrders)
}

// isExport reports whether a request bounds itself.
func isExport(c echo.Context) bool { return c.Path() == exportPath }

func (a *admin) listOrders(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := orderFilter(q)
	filter.Limit = int(q.integer("limit", 1, lifecycle.MaxListedOrders, listedOrders))
	if filter.After, err = lifecycle.OrderPositionOf(q.text("after")); err != nil {
		q.errs = append(q.errs, fieldError{"after", "it must be next_after of the page before"})
	}
	if err := q.wrong(); err != nil {
		return err
	}
	page, err := a.Store.Orders(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, view.NewOrderPage(&page))
}

// orderFilter reads what chooses orders.
func orderFilter(q *query) lifecycle.OrderFilter {
	return lifecycle.OrderFilter{
		SaleID: q.text("sale"), OrderID: q.text("order"), Number: q.integer("number", 1, math.MaxInt64, 0),
		UserID: q.text("buyer"), Statuses: lifecycle.StatusesIn(q.text("status")), Since: q.time("since"),
		Until: q.time("until"), PaymentID: q.text("payment_id"), Payment: payments.Outcome(q.text("payment")),
	}
}

// exportOrders sends all orders that the parameters choose. Nothing is sent before the first page is read, so that a
// store which is away is a problem like everywhere. An export that breaks off later ends with a line that says so, and
// its connection without the end of the answer.
func (a *admin) exportOrders(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter, format := orderFilter(q), view.ExportFormat(q.text("format"))
	if format == "" {
		format = view.CSV
	}
	if !slices.Contains(view.ExportFormats, format) {
		q.errs = append(q.errs, fieldError{"format", "use csv or jsonl"})
	}
	if err := q.wrong(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), exportTimeout)
	defer cancel()
	w := &patientWriter{response: c.Response(), format: format}
	answer := bufio.NewWriterSize(w, exportBuffer)
	export := view.NewOrderExport(format, answer)
	if err = w.wait(); err == nil {
		err = lifecycle.EachOrderPage(ctx, pageTimeout{a.Store}, filter, export.Write)
	}
	if err != nil && w.response.Committed {
		_ = export.BreakOff("the export was broken off; start it again")
	}
	if err == nil || w.response.Committed {
		err = errors.Join(err, answer.Flush()) // the client may be what is gone
	}
	return err
}

// pageTimeout bounds the reading of each page.
type pageTimeout struct{ list lifecycle.OrderList }

func (p pageTimeout) Orders(ctx context.Context, filter lifecycle.OrderFilter) (lifecycle.OrderPage, error) {
	ctx, cancel := context.WithTimeout(ctx, exportPageTimeout)
	defer cancel()
	return p.list.Orders(ctx, filter)
}

// patientWriter begins the answer at the first write, and gives the client time for each.
type patientWriter struct {
	response *echo.Response
	format   view.ExportFormat
}

// wait takes back the server's limit on the time that a request takes to arrive: this one is here, and a limit that
// passes later would end it.
func (w *patientWriter) wait() error {
	return http.NewResponseController(w.response).SetReadDeadline(time.Time{})
}

func (w *patientWriter) Write(p []byte) (int, error) {
	if !w.response.Committed {
		h := w.response.Header()
		h[headerContentType] = exportTypes[w.format]
		h["Content-Disposition"] = []string{`attachment; filename="orders.` + string(w.format) + `"`}
		w.response.WriteHeader(http.StatusOK)
	}
	control := http.NewResponseController(w.response)
	if err := control.SetWriteDeadline(time.Now().Add(exportPageTimeout)); err != nil {
		return 0, err
	}
	n, err := w.response.Write(p)
	return n, errors.Join(err, control.Flush())
}
