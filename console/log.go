package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline"
	"sluice/pipeline/auditlog"
)

// listed is how many lines a page of a list has.
const listed = 50

// logView is the audit log, as a filter chooses it.
type logView struct {
	Filter auditlog.Filter
	Rows   []logRow
	Next   string // the page after this one; empty: there is none
}

// logRow is a line of the audit log.
type logRow struct {
	At      time.Time
	Actor   string
	Action  string
	SaleID  string
	OrderID string
	Why     string
	Changes []change
	Rest    []field
}

func (c *console) listLog(q *request) error {
	form := q.URL.Query()
	filter := auditlog.Filter{
		Actor: strings.TrimSpace(form.Get("actor")), Action: strings.TrimSpace(form.Get("action")),
		SaleID: strings.TrimSpace(form.Get("sale")), OrderID: strings.TrimSpace(form.Get("order")), Limit: listed,
	}
	if after := form.Get("after"); after != "" {
		var err error
		if filter.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return pipeline.Errorf(pipeline.KindInvalid, "after: it must be the id of a line")
		}
	}
	if err := filter.Validate(); err != nil {
		return err
	}
	entries, err := c.Store.AuditLog(q.Context(), filter)
	if err != nil {
		return err
	}
	body := logView{Filter: filter, Rows: logRows(entries)}
	if len(entries) == listed {
		form.Set("after", strconv.FormatInt(entries[listed-1].ID, 10))
		body.Next = root + "log?" + form.Encode()
	}
	return q.render(http.StatusOK, "log", page{Title: "Audit log", Section: "Audit log", Body: body})
}

func logRows(entries []auditlog.Entry) []logRow {
	rows := make([]logRow, len(entries))
	for i := range entries {
		rows[i] = logRowOf(&entries[i])
	}
	return rows
}

func logRowOf(e *auditlog.Entry) logRow {
	before, after, rest := e.Change()
	row := logRow{At: e.At, Actor: e.Actor, Action: e.Action, SaleID: e.SaleID, Changes: changesOf(before, after)}
	for _, f := range fieldsOf(rest) {
		switch f.Name {
		case "reason":
			row.Why = f.Value
		case "order_id":
			row.OrderID = f.Value
		default:
			row.Rest = append(row.Rest, f)
		}
	}
	return row
}

// changesOf are the fields that differ. What was created had none before.
func changesOf(before, after json.RawMessage) []change {
	was := map[string]string{}
	for _, f := range fieldsOf(before) {
		was[f.Name] = f.Value
	}
	var changes []change
	for _, f := range fieldsOf(after) {
		if was[f.Name] != f.Value && f.Name != "version" {
			changes = append(changes, change{words(f.Name), was[f.Name], f.Value})
		}
	}
	return changes
}

// fieldsOf are the fields of a JSON object, by name.
func fieldsOf(object json.RawMessage) []field {
	var values map[string]any
	if json.Unmarshal(object, &values) != nil {
		return nil
	}
	fields := make([]field, 0, len(values))
	for name, value := range values {
		fields = append(fields, field{name, textOf(value)})
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool, nil:
		return fmt.Sprint(v)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	}
}

// logPath is the audit log of a sale or of an order.
func logPath(name, value string) string { return root + "log?" + url.Values{name: {value}}.Encode() }
