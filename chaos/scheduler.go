package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/internal/buyers"
)

const (
	doLimit   = time.Minute // for a target to be there: one that was just killed needs its start, on a busy machine
	undoLimit = time.Minute // a server's start on a busy machine, with all its data to read
)

// injected is a fault as it happened.
type injected struct {
	step
	began, ended time.Time
	hits         int
	err          error
}

// scheduler injects the faults of a plan. Steps begin in the plan's order, and overlap where they strike different
// processes and servers.
type scheduler struct {
	run          *run
	say          func(format string, args ...any)
	reservations map[string]*reservation // of each process and server: by the fault that has or had it last

	mu      sync.Mutex // protects faults
	faults  []injected
	running sync.WaitGroup
}

// reservation is a fault's time at a process or server.
type reservation struct {
	over chan struct{} // closed when it ended
	free time.Time     // when the next fault may begin; set before over is closed
}

// follow returns when every fault has begun and ended. When the context ends first, those that have begun are undone at
// once and the rest is left out.
func (s *scheduler) follow(ctx context.Context, plan []step) {
	began := time.Now()
	// How far the run is behind the plan: on a busy machine a server needs longer to come back than the plan has for
	// it, and losses wait until the APIs remember what they take.
	late := time.Duration(0)
	for _, next := range plan {
		buyers.Sleep(ctx, time.Until(began.Add(next.At+late)))
		waiting := time.Now()
		s.awaitTargets(ctx, next)
		if traits[next.Kind].loses {
			s.run.awaitRemembered(ctx)
		}
		late += time.Since(waiting)
		if ctx.Err() != nil {
			break
		}
		own := s.reserve(next)
		s.running.Go(func() {
			s.inject(ctx, next)
			if own.free = time.Now(); traits[next.Kind].loses {
				own.free = own.free.Add(lossTail)
			}
			close(own.over)
		})
	}
	s.running.Wait()
}

// awaitTargets waits until the faults before at the same processes and servers are over: two at once would hide each
// other, and one that meets a server which is not there yet would never have happened.
func (s *scheduler) awaitTargets(ctx context.Context, next step) {
	for _, name := range next.occupies() {
		before := s.reservations[name]
		if before == nil {
			continue
		}
		select {
		case <-before.over:
			buyers.Sleep(ctx, time.Until(before.free))
		case <-ctx.Done():
			return
		}
	}
}

func (s *scheduler) reserve(next step) *reservation {
	own := &reservation{over: make(chan struct{})}
	for _, name := range next.occupies() {
		s.reservations[name] = own
	}
	return own
}

func (s *scheduler) inject(ctx context.Context, next step) {
	fault := s.run.newFault(next)
	done := injected{step: next, began: time.Now()}
	doing, cancel := context.WithTimeout(ctx, doLimit)
	hits, err := fault.do(doing)
	cancel()
	if err == nil {
		buyers.Sleep(ctx, next.For)
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	more, undoErr := fault.undo(undoing)
	done.ended, done.hits, done.err = time.Now(), hits+more, errors.Join(err, undoErr)
	s.say("%s: %d hits %s", next, done.hits, inParentheses(done.err))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, done)
}

func inParentheses(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
