package httpapi

import (
	"net/http"
	"testing"
	"time"
)

func TestWaitPreference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  time.Duration
	}{
		{nil, 0},
		{[]string{"wait=5"}, 5 * time.Second},
		{[]string{"respond-async, wait=10"}, 10 * time.Second},
		{[]string{"respond-async", "foo; bar", "WAIT = 7"}, 7 * time.Second},
		{[]string{`wait="3"; foo=bar, wait=9`}, 3 * time.Second},
		{[]string{`foo="a, wait=9 \", wait=8", wait=4`}, 4 * time.Second},
		{[]string{`foo; wait=9, handling=lenient`}, 0},
		{[]string{"wait=30"}, 30 * time.Second},
		{[]string{"wait=31"}, 30 * time.Second},
		{[]string{"wait=99999999999999999999999"}, 30 * time.Second},
		{[]string{"wait=0"}, 0},
		{[]string{"wait=abc, wait=5"}, 0}, // the first one counts
		{[]string{"wait=-1"}, 0},
		{[]string{"wait=1.5"}, 0},
		{[]string{"wait=+5"}, 0},
		{[]string{"wait"}, 0},
		{[]string{"wait="}, 0},
		{[]string{`wait="`}, 0},
		{[]string{`wait=""`}, 0},
		{[]string{",,;=,\"", "wait=5"}, 5 * time.Second},
		{[]string{"waits=5, await=6"}, 0},
	} {
		if got := waitPreference(http.Header{"Prefer": c.lines}); got != c.want {
			t.Errorf("%q: got %s, want %s", c.lines, got, c.want)
		}
	}
}
