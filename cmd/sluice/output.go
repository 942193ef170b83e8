package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// printJSON prints one value, indented, for jq and for people.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
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
