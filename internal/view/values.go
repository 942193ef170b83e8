package view

import "time"

// Time is how times are written everywhere: RFC 3339, UTC, milliseconds.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// TimeOrNil is null for a time that has not come.
func TimeOrNil(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := Time(t)
	return &s
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// views views each item of a list. It is never nil, so that its JSON is a list.
func views[T, V any](list []T, view func(*T) V) []V {
	all := make([]V, len(list))
	for i := range list {
		all[i] = view(&list[i])
	}
	return all
}
