package httpapi

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query reads parameters and notes those that break a rule. Those that nobody asked for do: a filter that is not
// understood, or is empty because a variable was, must not choose everything.
type query struct {
	values url.Values
	lax    bool // parameters that nobody asked for are left alone
	asked  []string
	errs   []fieldError
}

func readQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fieldError{"query", "it is not valid"}
	}
	return &query{values: values}, nil
}

// text is "" for a parameter that is not there.
func (q *query) text(name string) string {
	given := q.values[name]
	q.asked = append(q.asked, name)
	if len(given) > 1 {
		q.errs = append(q.errs, fieldError{name, "it is there twice"})
	}
	if len(given) == 0 {
		return ""
	}
	if given[0] == "" && !q.lax && name != "after" { // an empty cursor is the beginning
		q.errs = append(q.errs, fieldError{name, "it is empty: give it a value, or leave it out"})
	}
	return given[0]
}

func (q *query) integer(name string, least, most, fallback int64) int64 {
	text := q.text(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		q.errs = append(q.errs, fieldError{name, fmt.Sprintf("it must be an integer from %d to %d", least, most)})
	}
	return n
}

func (q *query) boolean(name string) bool {
	text := q.text(name)
	if text != "" && text != "true" && text != "false" {
		q.errs = append(q.errs, fieldError{name, "it must be true or false"})
	}
	return text == "true"
}

// wrong is the problem that names every parameter that breaks a rule, or nil. Call it when all have been read.
func (q *query) wrong() error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !q.lax && !slices.Contains(q.asked, name) {
			shown := name[:min(len(name), maxNameShown)]
			q.errs = append(q.errs, fieldError{shown, "it is no parameter here: use " + strings.Join(q.asked, ", ")})
		}
	}
	if len(q.errs) == 0 {
		return nil
	}
	return invalid(q.errs...)
}

// maxNameShown bounds what an answer repeats of a parameter that is not known, in bytes.
const maxNameShown = 64
