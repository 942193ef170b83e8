package main

import (
	"testing"
	"time"
)

func TestWhen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"now":                       now,
		"+0s":                       now,
		"+1h":                       now.Add(time.Hour),
		"+1h30m":                    now.Add(90 * time.Minute),
		"2026-12-01T10:00:00Z":      time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
		"2026-12-01T10:00:00+02:00": time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	} {
		if got, err := when(text, now); err != nil || !got.Equal(want) {
			t.Errorf("when(%q): got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "+", "+x", "1h", "-1h", "+-1h", "NOW", "2026-12-01", "+1d", "0000-01-01T00:00:00Z"} {
		if got, err := when(text, now); err == nil {
			t.Errorf("when(%q): got %v, want an error", text, got)
		}
	}
}
