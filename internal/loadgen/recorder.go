package loadgen

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a histogram can tell apart: 1 µs to a minute, each value to a thousandth of itself. A longer wait counts as a
// minute; deadlines and the bound of the queue keep waits far below.
const (
	shortestMicros = 1
	longestMicros  = int64(time.Minute / time.Microsecond)
	digits         = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(shortestMicros, longestMicros, digits)
}

func record(h *hdrhistogram.Histogram, took time.Duration) {
	// A value within the bounds is never refused.
	_ = h.RecordValue(min(max(took.Microseconds(), shortestMicros), longestMicros))
}

// recorder counts what becomes of a load.
type recorder struct {
	counted time.Duration // what is due before this is warm-up

	mu        sync.Mutex // protects what follows
	waits     map[outcomeKey]*hdrhistogram.Histogram
	lateness  *hdrhistogram.Histogram
	statuses  map[int]int64
	failed    int64
	unsent    int64
	failure   error
	lastAfter time.Duration
}

// outcomeKey distinguishes answers.
type outcomeKey struct {
	kind   Kind
	status int // 0: no answer
	code   string
}

func newRecorder(counted time.Duration) *recorder {
	return &recorder{
		counted: counted, waits: map[outcomeKey]*hdrhistogram.Histogram{}, lateness: newHistogram(),
		statuses: map[int]int64{},
	}
}

// done notes what became of a request that was meant to be sent at due and ended at now, both after the load began.
func (r *recorder) done(due, now time.Duration, a answer, err error) {
	key := outcomeKey{kindOf(a.status, err), a.status, a.code}
	if err != nil {
		key = outcomeKey{kind: Failed}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastAfter = max(r.lastAfter, now)
	if err == nil {
		r.statuses[a.status]++
	} else {
		r.failed++
		r.failure = cmp.Or(r.failure, err)
	}
	if due < r.counted {
		return
	}
	waits := r.waits[key]
	if waits == nil {
		waits = newHistogram()
		r.waits[key] = waits
	}
	record(waits, now-due)
}

func (r *recorder) notSent(a arrival) {
	if a.due < r.counted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsent++
}

func (r *recorder) late(a arrival, by time.Duration) {
	if a.due < r.counted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record(r.lateness, by)
}

// result is called when everybody has stopped recording.
func (r *recorder) result() Result {
	total := Result{
		Statuses: r.statuses, Failures: r.failed, NotSent: r.unsent, Took: max(0, r.lastAfter-r.counted),
		Late: latencyOf(r.lateness),
	}
	if r.failure != nil {
		total.FirstFailure = r.failure.Error()
	}
	kinds := map[Kind]*hdrhistogram.Histogram{}
	for key, waits := range r.waits {
		total.Outcomes = append(total.Outcomes, Outcome{key.kind, key.status, key.code, latencyOf(waits)})
		if kinds[key.kind] == nil {
			kinds[key.kind] = newHistogram()
		}
		kinds[key.kind].Merge(waits)
	}
	slices.SortFunc(total.Outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	for kind, into := range map[Kind]*Latency{
		Accepted: &total.Accepts, Rejected: &total.Rejections, Shed: &total.Sheds, Failed: &total.Errors,
	} {
		if waits := kinds[kind]; waits != nil {
			*into = latencyOf(waits)
		}
	}
	return total
}
