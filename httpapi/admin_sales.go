package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
)

// The defaults of a new sale; sluice sale create has the same.
const (
	defaultMaxQuantity   = 1
	defaultWindow        = time.Hour
	defaultPaymentWindow = 15 * time.Minute
	defaultEntrySpread   = 10 * time.Second
)

func (a *admin) listSales(c echo.Context) error {
	q, err := readQuery(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	filter := pipeline.SalesFilter{
		After: q.text("after"),
		Limit: int(q.integer("limit", 1, maxListedSales, maxListedSales)),
	}
	if filter.After != "" && !pipeline.ValidSaleID(filter.After) {
		q.errs = append(q.errs, fieldError{"after", "it must be the id of a sale"})
	}
	if err := q.wrong(); err != nil {
		return err
	}
	sales, err := a.Store.Sales(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return sendPage(c, "sales", a.views(c.Request().Context(), sales), filter.Limit,
		func(v *view.Sale) string { return v.ID })
}

// views leaves out the stock where Redis does not answer or has no such sale: the definitions are worth showing.
func (a *admin) views(ctx context.Context, sales []*pipeline.Sale) []view.Sale {
	ctx, cancel := context.WithTimeout(ctx, listedStockTimeout)
	defer cancel()
	views := make([]view.Sale, len(sales))
	for i, sale := range sales {
		var remaining *int64
		if units, err := a.Stock.Fresh(ctx, sale); err == nil {
			remaining = &units
		} else if pipeline.KindOf(err) == pipeline.KindUnavailable {
			cancel() // the other sales would only wait in vain as well
		}
		views[i] = view.NewSale(sale, a.Now(), remaining)
	}
	return views
}

// sale returns the sale that the path names.
func (a *admin) sale(c echo.Context) (*pipeline.Sale, error) {
	id, err := pathParam(c, "sale")
	if err != nil {
		return nil, err
	}
	sale, err := a.Store.Sale(c.Request().Context(), id)
	return sale, notFound(err, codeUnknownSale)
}

func (a *admin) showSale(c echo.Context) error {
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	return a.sendSale(c, http.StatusOK, sale)
}

func (a *admin) sendSale(c echo.Context, status int, sale *pipeline.Sale) error {
	return sendJSON(c, status, a.views(c.Request().Context(), []*pipeline.Sale{sale})[0])
}

func (a *admin) createSale(c echo.Context) error {
	sale, err := a.readSale(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.Publisher.Create(ctx, sale); err != nil {
		return err
	}
	if stored, err := a.Store.Sale(ctx, sale.ID); err == nil { // with what the stores have added
		sale = stored
	}
	c.Response().Header()[headerLocation] = []string{adminRoot + "sales/" + sale.ID}
	return a.sendSale(c, http.StatusCreated, sale)
}

func (a *admin) readSale(c echo.Context) (*pipeline.Sale, error) {
	sale := &pipeline.Sale{MaxQuantity: defaultMaxQuantity, OpensAt: a.Now()}
	partitions := int64(1)
	payment, spread := int64(defaultPaymentWindow/time.Second), int64(defaultEntrySpread/time.Second)
	who, given, err := readCommand(c, map[string]any{
		"id": &sale.ID, "title": &sale.Title, "total": &sale.Total, "max_quantity": &sale.MaxQuantity,
		"opens_at": &sale.OpensAt, "closes_at": &sale.ClosesAt, "payment_window_seconds": &payment,
		"unit_price": &sale.UnitPrice, "currency": &sale.Currency, "waitlist": &sale.Waitlist, "note": &sale.Note,
		"limit_group": &sale.LimitGroup, "group_limit": &sale.GroupLimit,
		fieldEntryTicket: &sale.EntryTicket, fieldEntrySpread: &spread,
		"partitions": &partitions,
	})
	if err != nil {
		return nil, err
	}
	var missing []fieldError
	for _, name := range []string{"id", "total"} {
		if !given[name] {
			missing = append(missing, fieldError{name, "it is missing"})
		}
	}
	if most := int64(pipeline.MaxPaymentWindow / time.Second); payment < 0 || payment > most { // before it overflows
		missing = append(missing, fieldError{"payment_window_seconds", "it must be from 0 to 2592000 (30 days)"})
	}
	if wrong := checkSpread(spread); wrong != nil {
		missing = append(missing, *wrong)
	}
	if partitions < 0 || partitions > pipeline.MaxPartitions {
		missing = append(missing, fieldError{"partitions", "it must be from 0 (one on each Redis master) to 64"})
	}
	if len(missing) > 0 {
		return nil, invalid(missing...)
	}
	if sale.Spread = int(partitions); partitions == 0 {
		sale.Spread = -1
	}
	sale.EntrySpread = time.Duration(spread) * time.Second
	if !given["title"] {
		sale.Title = sale.ID
	}
	if !given["closes_at"] {
		sale.ClosesAt = sale.OpensAt.Add(defaultWindow)
	}
	sale.PaymentWindow, sale.CreatedBy = time.Duration(payment)*time.Second, who
	if err := sale.Validate(); err != nil {
		return nil, err
	}
	if err := a.requireEntryKeys(sale.EntryTicket); err != nil {
		return nil, err
	}
	if !sale.ClosesAt.After(a.Now()) {
		return nil, fieldError{"closes_at", "it is over: nobody could order"}
	}
	return sale, nil
}

func (a *admin) restock(c echo.Context) error {
	var add int64
	return a.change(c, map[string]any{"add": &add}, func(given map[string]bool) (pipeline.SaleChange, error) {
		if !given["add"] || add < 1 || add > pipeline.MaxStock {
			return pipeline.SaleChange{}, fieldError{
				"add",
				"it must be from 1 to 2147483648 units; a reduction takes units away that nobody has",
			}
		}
		return pipeline.SaleChange{AddStock: add}, nil
	})
}

func (a *admin) reschedule(c echo.Context) error {
	var opens, closes time.Time
	return a.change(c, map[string]any{"opens_at": &opens, "closes_at": &closes},
		func(given map[string]bool) (change pipeline.SaleChange, err error) {
			if len(given) == 0 {
				return change, fieldError{fieldBody, "it changes nothing: send opens_at, closes_at or both"}
			}
			if given["opens_at"] {
				change.OpensAt = &opens
			}
			if given["closes_at"] {
				change.ClosesAt = &closes
			}
			return change, nil
		})
}

func (a *admin) setState(state pipeline.SaleState) echo.HandlerFunc {
	return func(c echo.Context) error {
		return a.change(c, nil, func(map[string]bool) (pipeline.SaleChange, error) {
			return pipeline.SaleChange{State: &state}, nil
		})
	}
}

// change makes one change of the sale that the path names, and answers with the sale after it.
func (a *admin) change(
	c echo.Context, fields map[string]any, what func(given map[string]bool) (pipeline.SaleChange, error),
) error {
	id, err := pathParam(c, "sale")
	if err != nil {
		return err
	}
	who, given, err := readCommand(c, fields)
	if err != nil {
		return err
	}
	change, err := what(given)
	if err != nil {
		return err
	}
	sale, err := a.Publisher.Change(c.Request().Context(), id, who, change)
	if err != nil {
		return notFound(err, codeUnknownSale)
	}
	return a.sendSale(c, http.StatusOK, sale)
}
