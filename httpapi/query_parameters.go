package httpapi

import (
	"fmt"
	"net/url"
	"strconv"
)

// query reads parameters and notes those that break a rule. Unknown ones are ignored.
type query struct {
	values url.Values
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
	if len(given) > 1 {
		q.errs = append(q.errs, fieldError{name, "it is there twice"})
	}
	if len(given) == 0 {
		return ""
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

// wrong is the problem that names every parameter that breaks a rule, or nil.
func (q *query) wrong() error {
	if len(q.errs) == 0 {
		return nil
	}
	return invalid(q.errs...)
}
