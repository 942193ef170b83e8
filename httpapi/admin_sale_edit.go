package httpapi

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/pipeline"
)

// editSale changes what is given of a sale, all of it at once. Repeating it changes nothing.
func (a *admin) editSale(c echo.Context) error {
	var change pipeline.SaleChange
	title, note, currency, price, waitlist, limit := "", "", "", int64(0), int64(0), 0
	ticket, spread := false, int64(0)
	var opens, closes time.Time
	return a.change(c, map[string]any{
		"title": &title, "note": &note, "unit_price": &price, "currency": &currency, "waitlist": &waitlist,
		"max_quantity": &limit, "opens_at": &opens, "closes_at": &closes, "if_version": &change.IfVersion,
		fieldEntryTicket: &ticket, fieldEntrySpread: &spread,
	}, func(given map[string]bool) (pipeline.SaleChange, error) {
		if len(given) == 0 || len(given) == 1 && given["if_version"] {
			return change, fieldError{fieldBody, "it changes nothing: send the fields that are to change"}
		}
		if given["if_version"] && change.IfVersion < 1 {
			return change, fieldError{"if_version", "versions begin at 1"}
		}
		give(given["title"], &change.Title, &title)
		give(given["note"], &change.Note, &note)
		give(given["unit_price"], &change.UnitPrice, &price)
		give(given["currency"], &change.Currency, &currency)
		give(given["waitlist"], &change.Waitlist, &waitlist)
		give(given["max_quantity"], &change.MaxQuantity, &limit)
		give(given["opens_at"], &change.OpensAt, &opens)
		give(given["closes_at"], &change.ClosesAt, &closes)
		give(given[fieldEntryTicket], &change.EntryTicket, &ticket)
		if wrong := checkSpread(spread); wrong != nil {
			return change, *wrong
		}
		over := time.Duration(spread) * time.Second
		give(given[fieldEntrySpread], &change.EntrySpread, &over)
		return change, a.requireEntryKeys(ticket)
	})
}

// give sets a field of a change to a value that was given.
func give[T any](given bool, field **T, value *T) {
	if given {
		*field = value
	}
}

// reduce takes units out of a sale that nobody has. Repeating it changes nothing.
func (a *admin) reduce(c echo.Context) error {
	id, err := pathParam(c, "sale")
	if err != nil {
		return err
	}
	var to int64
	who, given, err := readCommand(c, map[string]any{"to": &to})
	if err != nil {
		return err
	}
	if !given["to"] || to < 1 || to > pipeline.MaxStock {
		return fieldError{"to", "it must be from 1 to 2147483648 units: what the sale has in all then, sold ones included"}
	}
	sale, err := a.Publisher.Reduce(c.Request().Context(), id, who, to)
	if err != nil {
		return notFound(err, codeUnknownSale)
	}
	return a.sendSale(c, http.StatusOK, sale)
}
