package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Off is the text of a Rate that limits nothing.
const Off = "off"

// maxPer bounds the time of a Rate: what counts longer belongs into a store, not into the memory of a process.
const maxPer = time.Hour

// Rate is so many requests in a time, all of which may come at once. The zero Rate limits nothing.
type Rate struct {
	Requests int
	Per      time.Duration // whole seconds
}

// ParseRate reads "100/1s" or "off". A Rate is at least one request, in a time from 1s to 1h in whole seconds, because
// that is what the header RateLimit-Policy can say.
func ParseRate(text string) (Rate, error) {
	if text == Off {
		return Rate{}, nil
	}
	requests, per, found := strings.Cut(text, "/")
	n, badCount := strconv.Atoi(requests)
	d, badTime := time.ParseDuration(per)
	if !found || badCount != nil || badTime != nil || n < 1 || n > math.MaxInt32 ||
		d < time.Second || d > maxPer || d%time.Second != 0 {
		return Rate{}, fmt.Errorf("%q is neither off nor requests/time, like 100/1s or 20/1m, up to 1h in whole seconds", text)
	}
	return Rate{Requests: n, Per: d}, nil
}

// String is the form that ParseRate reads.
func (r Rate) String() string {
	if r.Requests == 0 {
		return Off
	}
	return fmt.Sprintf("%d/%s", r.Requests, r.Per)
}
