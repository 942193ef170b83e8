package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sluice/internal/table"
)

// printJSON prints one value, indented, for jq and for people.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printLine prints a value as one line of JSON, in a list that is too long for one value.
func (a *app) printLine(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// answer prints a value for programs, or a line about it for people.
func (a *app) answer(v any, format string, args ...any) error {
	if a.json {
		return a.printJSON(v)
	}
	sayf(a.out, format, args...)
	return nil
}

// printList prints a list for programs or, for people, its table, or a line instead of an empty one.
func printList[V any](a *app, list []V, t *table.Table, empty string) error {
	switch {
	case a.json:
		return a.printJSON(list)
	case len(list) == 0:
		sayf(a.out, "%s", empty)
		return nil
	default:
		return t.Write(a.out, "")
	}
}

// sayMore says how to see the next page, where a page is full.
func (a *app) sayMore(shown, limit int, last string) {
	if shown == limit && !a.json {
		sayf(a.out, "There may be more; --after %s shows the next page.", last)
	}
}

// sayf prints a line for people.
func sayf(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// shortTime is a time in a table.
func shortTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// age is a duration in a table.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
