package httpapi

import (
	"sync"
	"time"
)

const (
	// logWindow is the time in which answers of a kind are counted.
	logWindow = time.Second
	// logPerWindow is how many answers of one route and status are logged in a window: enough to see who sends what. The
	// metrics count all of them.
	logPerWindow = 50
)

// logSampler keeps a flood of the same answers from filling the log.
type logSampler struct {
	mu     sync.Mutex // protects the rest
	began  time.Time
	logged map[logKind]int // bounded by routes and statuses
	left   int             // out of the log since it was said last
}

type logKind struct {
	route  string
	status int
}

// take reports whether an answer is to be logged, and how many others were left out since the last one that was.
func (s *logSampler) take(route string, status int, now time.Time) (logged bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged == nil || now.Sub(s.began) >= logWindow || now.Before(s.began) {
		s.began, s.logged = now, map[logKind]int{}
	}
	kind := logKind{route, status}
	if s.logged[kind] >= logPerWindow {
		s.left++
		return false, 0
	}
	s.logged[kind]++
	left, s.left = s.left, 0
	return true, left
}
