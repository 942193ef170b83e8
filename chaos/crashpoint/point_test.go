package crashpoint

import (
	"fmt"
	"slices"
	"sync"

	"sluice/internal/faultnet"
)

// point is where a process is killed: at a moment of the n-th request with a label, from its start on.
type point struct {
	label  string
	n      int
	moment faultnet.Moment
}

func (p point) String() string { return fmt.Sprintf("%s %s %d", p.moment, p.label, p.n) }

// quiet requests are no steps: they change nothing and decide nothing. A process that dies beside one is in the state
// before the next request, which is a point of its own.
var quiet = map[string]bool{
	// the greeting of a connection
	"redis hello": true, "redis client setinfo": true, "redis client maint_notifications": true,
	"redis select": true, "redis ping": true,
	"redis info": true, "redis config get": true, "redis command info": true, // examine a server
	"redis xinfo groups": true, "redis xinfo consumers": true, // read for the metrics
	"postgres greeting": true, "postgres prepare": true, "postgres -- ping": true,
}

// polls are asked again and again by the clock, so that their number says nothing. The first one of a run stands for
// all: what a later one finds is what the work in between left, and that work has points of its own.
var polls = map[string]bool{
	"redis set worker": true, "redis pexpire worker": true, // heartbeats; the first is a step of joining
	"redis verify look": true, "redis xpending summary": true, "redis xautoclaim": true,
	"redis exists worker":    true,
	"redis run_once release": true, "redis run_once publish": true,
	"redis run_once watch": true, "redis run_once reap": true,
	"redis hget": true, "redis hmget": true, // the version of a sale, its counters
	"postgres read all watermarks": true, "postgres read sales": true,
	"postgres read releases": true, "postgres read sale": true,
}

// reads of the stream are polls too, once nothing is left in it.
const streamReads = 2

// counted is how many requests with a label are points.
func counted(label string) int {
	switch {
	case quiet[label]:
		return 0
	case label == "redis xreadgroup":
		return streamReads
	case polls[label]:
		return 1
	default:
		return 100 // more than any run has
	}
}

// watcher lists the points that a process passes, or has it killed at one.
type watcher struct {
	target  point         // the zero point is never reached
	reached chan struct{} // closed at the target
	dead    chan struct{} // closed when the process is gone, or the run is over

	interfereAt point
	interfere   func() // called at that point; nil: never

	mu     sync.Mutex // protects the rest
	counts map[point]int
	passed []point
	over   bool
}

func newWatcher(target point) *watcher {
	return &watcher{target: target, reached: make(chan struct{}), dead: make(chan struct{}), counts: map[point]int{}}
}

// see is called at each moment of each request. At the target it returns when the process is dead: what was held back
// arrives nowhere.
func (w *watcher) see(label string, moment faultnet.Moment) (pass bool) {
	p, target := w.notes(label, moment)
	if w.interfere != nil && p == w.interfereAt {
		w.interfere()
	}
	if !target {
		return true
	}
	close(w.reached)
	<-w.dead
	return false
}

// notes says which point this is, and whether it is the target.
func (w *watcher) notes(label string, moment faultnet.Moment) (p point, target bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := point{label: label, moment: moment}
	w.counts[kind]++
	p = point{label, w.counts[kind], moment}
	if w.over || p.n > counted(label) {
		return p, false
	}
	w.passed = append(w.passed, p)
	w.over = p == w.target
	return p, w.over
}

// missing returns those of some labels that were not passed.
func (w *watcher) missing(labels []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(labels),
		func(label string) bool { return w.counts[point{label: label, moment: faultnet.Before}] > 0 })
}

// finish ends the watch and returns the points that were passed, in their order. It reports whether the target was
// one of them.
func (w *watcher) finish() (passed []point, reached bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reached = w.over
	w.over = true
	return w.passed, reached
}
