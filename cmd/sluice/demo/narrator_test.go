package demo

import (
	"strings"
	"testing"
)

func TestBar(t *testing.T) {
	t.Parallel()
	for done, want := range map[int]int{0: 0, 50: 12, 100: 24, 200: 24} {
		if got := strings.Count(bar(done, 100), "█"); got != want {
			t.Errorf("bar(%d, 100): got %d full, want %d", done, got, want)
		}
	}
	if got := clip("äöü", 2); got != "äö" {
		t.Errorf("got %q, want two characters", got)
	}
}
