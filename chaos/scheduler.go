package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/internal/buyers"
)

const (
	doLimit   = time.Minute      // for a fault to begin, on a busy machine
	undoLimit = time.Minute      // a server's start on a busy machine, with all its data to read
	thereWait = 20 * time.Second // for a target that was struck before to be back, and for buyers to get orders again
	sellEvery = 20 * time.Millisecond
)

// injected is a fault as it happened.
type injected struct {
	step
	began, ended time.Time
	hits         int
	err          error
}

// scheduler injects the faults of a plan, one pair after the other.
type scheduler struct {
	run *run
	say func(format string, args ...any)

	mu     sync.Mutex // protects faults
	faults []injected
}

// follow returns when every fault has begun and ended. When the context ends first, those that have begun are undone at
// once and the rest is left out.
func (s *scheduler) follow(ctx context.Context, plan []step) {
	began := time.Now()
	// How far the run is behind the plan: on a busy machine a server needs longer to come back than the plan has for it.
	late := time.Duration(0)
	for len(plan) > 0 && ctx.Err() == nil {
		pair := 1
		for pair < len(plan) && plan[pair].During == plan[0].Number {
			pair++
		}
		buyers.Sleep(ctx, time.Until(began.Add(plan[0].At+late)))
		waiting := time.Now()
		s.run.awaitSelling(ctx)
		late += time.Since(waiting)
		if ctx.Err() == nil {
			s.injectPair(ctx, plan[0], plan[1:pair])
		}
		plan = plan[pair:]
	}
}

// injectPair returns when a first fault, and those that begin while it is on, are over.
func (s *scheduler) injectPair(ctx context.Context, first step, seconds []step) {
	var running sync.WaitGroup
	on, met := make(chan struct{}), make(chan struct{})
	running.Go(func() { s.inject(ctx, first, on, met) })
	<-on
	began := time.Now()
	over := map[string]chan struct{}{} // by what they strike: the seconds so far
	for _, second := range seconds {
		buyers.Sleep(ctx, time.Until(began.Add(second.At-first.At)))
		for _, name := range second.occupies() { // it may last longer than planned
			if before := over[name]; before != nil {
				<-before
			}
		}
		if ctx.Err() != nil {
			break
		}
		begun, done := make(chan struct{}), make(chan struct{})
		for _, name := range second.occupies() {
			over[name] = done
		}
		running.Go(func() {
			defer close(done)
			s.inject(ctx, second, begun, nil)
		})
		<-begun
	}
	close(met)
	running.Wait()
}

// inject closes on once the fault is on, or has failed, and ends the fault when it has lasted and met others. Nil: it
// waits for none. A loss of data is still on while it is repaired, so it does not wait either.
func (s *scheduler) inject(ctx context.Context, next step, on chan<- struct{}, met <-chan struct{}) {
	fault := s.run.newFault(next)
	done := injected{step: next, began: time.Now()}
	doing, cancel := context.WithTimeout(ctx, doLimit)
	hits, err := fault.do(doing)
	cancel()
	close(on)
	if err == nil {
		buyers.Sleep(ctx, next.For)
	}
	if t := traits[next.Kind]; met != nil && !t.loses && !t.mislays {
		<-met
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

// awaitSelling waits until all processes are there and an order is accepted, for a while: a pair that strikes what the
// last one left behind would be another pair.
func (r *run) awaitSelling(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, thereWait)
	defer cancel()
	r.system.awaitProcesses(ctx)
	for before := r.history.Tally().Orders; r.history.Tally().Orders == before && ctx.Err() == nil; {
		buyers.Sleep(ctx, sellEvery)
	}
}

func inParentheses(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
