package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"sluice/internal/table"
	"sluice/internal/view"
	"sluice/pipeline/deadletter"
)

// printLetter shows all of a letter: the long parts, which no table cell would hold, on lines of their own.
func (a *app) printLetter(l *deadletter.Letter) error {
	v := view.NewLetter(l)
	if a.json {
		return a.printJSON(v)
	}
	sayf(a.out, "Dead letter %s: %s", v.ID, table.Printable(v.Reason))
	t := table.New("", "")
	t.Row("since", shortTime(l.CreatedAt))
	t.Row("sale", cmp.Or(v.SaleID, "unknown"))
	t.Row("order", cmp.Or(v.OrderID, "unknown"))
	t.Row("entry", v.Partition+" "+v.EntryID)
	t.Row("deliveries", v.Deliveries)
	t.Row("state", stateText(l))
	if err := t.Write(a.out, "  "); err != nil {
		return err
	}
	sayf(a.out, "  error: %s", table.Printable(v.Error))
	if v.Note != "" {
		sayf(a.out, "  note: %s", table.Printable(v.Note))
	}
	sayf(a.out, "  payload, %d fields:", len(v.Payload))
	for _, name := range slices.Sorted(maps.Keys(v.Payload)) {
		sayf(a.out, "    %s = %s", table.Printable(name), payloadText(v.Payload[name]))
	}
	return nil
}

func stateText(l *deadletter.Letter) string {
	switch {
	case l.Resolution == deadletter.Replayed:
		return "replayed at " + shortTime(l.ResolvedAt) + " as order " + l.ReplayID
	case l.Resolution != "":
		return string(l.Resolution) + " at " + shortTime(l.ResolvedAt)
	case l.ReplayID != "":
		return "waits; a replay tried to make order " + l.ReplayID
	default:
		return "waits"
	}
}

// payloadText is a text, or for bytes the JSON they are stored as.
func payloadText(value any) string {
	if text, ok := value.(string); ok {
		return table.Printable(text)
	}
	stored, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return string(stored)
}
