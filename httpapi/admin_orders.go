package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/pipeline"
	"sluice/pipeline/lifecycle"
)

// returnOrder takes a paid order back. Whether its units go on sale again must be said.
func (a *admin) returnOrder(c echo.Context) error {
	var restock bool
	var reason string
	return a.commandOnOrder(c, map[string]any{"restock": &restock, "reason": &reason}, []string{"restock", "reason"},
		func(ctx context.Context, who, saleID, orderID string) (pipeline.Order, error) {
			return a.Returner.Return(ctx, lifecycle.Return{
				SaleID: saleID, OrderID: orderID, Restock: restock, Actor: who, Reason: reason,
			})
		})
}

// extendOrder gives one order more time to pay.
func (a *admin) extendOrder(c echo.Context) error {
	var until time.Time
	var reason string
	return a.commandOnOrder(c, map[string]any{"until": &until, "reason": &reason}, []string{"until", "reason"},
		func(ctx context.Context, who, saleID, orderID string) (pipeline.Order, error) {
			return a.Extender.Order(ctx, lifecycle.Extension{
				SaleID: saleID, OrderID: orderID, Until: until, Actor: who, Reason: reason,
			})
		})
}

// extendSale gives all orders of a sale that await their payment more time for it.
func (a *admin) extendSale(c echo.Context) error {
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	var until time.Time
	var reason string
	who, given, err := readCommand(c, map[string]any{"until": &until, "reason": &reason})
	if err = missing(given, err, "until", "reason"); err != nil {
		return err
	}
	extended, err := a.Extender.Sale(c.Request().Context(), lifecycle.Extension{
		SaleID: sale.ID, Until: until, Actor: who, Reason: reason,
	})
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, struct {
		SaleID   string `json:"sale_id"`
		Until    string `json:"until"`
		Extended int    `json:"extended"`
	}{sale.ID, view.Time(until), extended})
}

// commandOnOrder runs a command on the order that the path names, and answers with the order as it is then.
func (a *admin) commandOnOrder(
	c echo.Context, fields map[string]any, required []string,
	run func(ctx context.Context, actor, saleID, orderID string) (pipeline.Order, error),
) error {
	orderID, err := orderParam(c)
	if err != nil {
		return err
	}
	sale, err := a.sale(c)
	if err != nil {
		return err
	}
	who, given, err := readCommand(c, fields)
	if err = missing(given, err, required...); err != nil {
		return err
	}
	order, err := run(c.Request().Context(), who, sale.ID, orderID)
	if err != nil {
		return notFound(err, codeUnknownOrder)
	}
	return sendJSON(c, http.StatusOK, view.NewOrder(sale, &order))
}

// missing is the error about what was read, or else about every field that was not there and must be.
func missing(given map[string]bool, err error, required ...string) error {
	if err != nil {
		return err
	}
	var absent []fieldError
	for _, name := range required {
		if !given[name] {
			absent = append(absent, fieldError{name, "it is missing"})
		}
	}
	if len(absent) > 0 {
		return invalid(absent...)
	}
	return nil
}
