package db

import "time"

// optionalTime writes the zero time as null.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// timeOrZero reads null as the zero time, and every other one in UTC.
func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// optionalText writes the empty text as null.
func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
