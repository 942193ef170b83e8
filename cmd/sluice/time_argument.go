package main

import (
	"strings"
	"time"
)

// maxAhead bounds times like +1h: a sale planned for later than in ten years is a typing mistake.
const maxAhead = 10 * 365 * 24 * time.Hour

// when reads a time as it is typed: now, +1h (from now), or RFC 3339.
func when(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	if ahead, ok := strings.CutPrefix(text, "+"); ok {
		d, err := time.ParseDuration(ahead)
		if err != nil || d < 0 || d > maxAhead {
			return time.Time{}, usagef("%q is not a time: after + comes a duration such as 90s, 15m or 1h30m", text)
		}
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return time.Time{}, usagef("%q is not a time: use now, +1h or RFC 3339 such as 2026-11-27T09:00:00Z", text)
	}
	return at, nil
}
