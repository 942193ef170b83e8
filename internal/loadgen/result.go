package loadgen

import (
	"net/http"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kind is what an answer means to the buyer.
type Kind string

// The kinds.
const (
	Accepted Kind = "accepted" // 2xx
	Rejected Kind = "rejected" // 3xx and 4xx but 429: asking again does not help
	Shed     Kind = "shed"     // 429 and 503: the server asks to come again later
	Failed   Kind = "error"    // any other answer, or none in time
)

func kindOf(status int, err error) Kind {
	switch {
	case err != nil || status < http.StatusOK:
		return Failed
	case status < http.StatusMultipleChoices:
		return Accepted
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return Shed
	case status < http.StatusInternalServerError:
		return Rejected
	default:
		return Failed
	}
}

// Result is what became of a load. The waiting times leave the warm-up out; Statuses and Failures do not, so that they
// can be compared with what a store has.
type Result struct {
	Accepts    Latency   `json:"accepts"`
	Rejections Latency   `json:"rejections"`
	Sheds      Latency   `json:"sheds"`
	Errors     Latency   `json:"errors"`
	Outcomes   []Outcome `json:"outcomes"` // the same by status and code
	// NotSent counts buyers who found Config.Waiting others waiting, or still waited when the load was over for longer
	// than a deadline.
	NotSent int64   `json:"not_sent"`
	Late    Latency `json:"late"` // how late the generator itself was: part of every waiting time

	Took         time.Duration `json:"took"`     // from the end of the warm-up to the last answer
	Statuses     map[int]int64 `json:"statuses"` // answers, of the warm-up too
	Failures     int64         `json:"failures"` // requests without an answer, of the warm-up too
	FirstFailure string        `json:"first_failure,omitempty"`
}

// Counted is how many requests have a waiting time.
func (r *Result) Counted() int64 {
	return r.Accepts.Count + r.Rejections.Count + r.Sheds.Count + r.Errors.Count
}

// Outcome is the requests that were answered the same way.
type Outcome struct {
	Kind    Kind    `json:"kind"`
	Status  int     `json:"status,omitempty"` // 0: there was no answer
	Code    string  `json:"code,omitempty"`   // of the problem
	Latency Latency `json:"latency"`
}

// Latency is a number of requests and their waiting times, in µs.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	Max   float64 `json:"max_us"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) }
	return Latency{
		Count: h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()),
	}
}
