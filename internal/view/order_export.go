package view

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"sluice/pipeline/lifecycle"
)

// ExportFormat is how orders are written into a file.
type ExportFormat string

// The formats. Both have the fields of Order, under the same names.
const (
	CSV       ExportFormat = "csv"   // RFC 4180, a header first; see guarded
	JSONLines ExportFormat = "jsonl" // an object per line
)

// ExportFormats are all of them.
var ExportFormats = []ExportFormat{CSV, JSONLines}

// exportColumns are the fields of Order, in its order.
var exportColumns = []string{
	"order_id", "order_number", "sale_id", "user_id", "quantity", "amount", "currency", "status", "reason", "accepted_at",
	"persisted_at", "pay_by", "paid_at", "closed_at",
}

// incomplete is the field, or the first cell, of the last line of an export that was broken off.
const incomplete = "incomplete"

// OrderExport writes orders as a file.
type OrderExport struct {
	format ExportFormat
	csv    *csv.Writer
	json   *json.Encoder
	begun  bool
	orders int64
}

// NewOrderExport returns an export in one of ExportFormats to a writer, which should be buffered.
func NewOrderExport(format ExportFormat, to io.Writer) *OrderExport {
	e := &OrderExport{format: format, csv: csv.NewWriter(to), json: json.NewEncoder(to)}
	e.json.SetEscapeHTML(false)
	return e
}

// Orders is how many were written.
func (e *OrderExport) Orders() int64 { return e.orders }

// Write writes a page of orders; the first one, which may be empty, with what comes before all orders.
func (e *OrderExport) Write(page []lifecycle.ListedOrder) error {
	if e.format == CSV && !e.begun {
		_ = e.csv.Write(exportColumns) // Error returns what it did
	}
	e.begun = true
	for i := range page {
		v := NewListedOrder(&page[i])
		var err error
		if e.format == CSV {
			err = e.csv.Write(cells(&v))
		} else {
			err = e.json.Encode(&v)
		}
		if err != nil {
			return err
		}
		e.orders++
	}
	e.csv.Flush()
	return e.csv.Error()
}

// BreakOff writes a last line that no complete export has, with the reason: where a file is all that is left of an
// export, it says that orders are missing.
func (e *OrderExport) BreakOff(reason string) error {
	if e.format == CSV {
		_ = e.csv.Write([]string{strings.ToUpper(incomplete), guarded(reason)})
		e.csv.Flush()
		return e.csv.Error()
	}
	return e.json.Encode(map[string]string{incomplete: reason})
}

func cells(v *Order) []string {
	amount := ""
	if v.Amount != nil {
		amount = strconv.FormatInt(*v.Amount, 10)
	}
	return []string{
		v.OrderID, v.OrderNumber, v.SaleID, guarded(v.UserID), strconv.Itoa(v.Quantity), amount, textOf(v.Currency),
		v.Status, guarded(textOf(v.Reason)), v.AcceptedAt, textOf(v.PersistedAt), textOf(v.PayBy), textOf(v.PaidAt),
		textOf(v.ClosedAt),
	}
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// guarded puts an apostrophe before a text that a spreadsheet would run as a formula: a buyer chooses a user id, and
// =HYPERLINK(…) would act in the name of the person who opens the file. A text that begins with an apostrophe gets
// another, so that leaving out a first apostrophe always gives back the text.
func guarded(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n'＝＋－＠", []rune(text)[0]) {
		return "'" + text
	}
	return text
}
