package chaos

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	doLimit   = time.Minute // for a target to be there: one that was just killed needs its start, on a busy machine
	undoLimit = time.Minute // a server's start on a busy machine, with all its data to read
)

// deed is a fault as it happened.
type deed struct {
	Step
	began, ended time.Time
	hits         int
	err          error
}

// director carries out a plan. Steps begin in the plan's order, and overlap where they strike different processes and
// servers.
type director struct {
	stage *stage
	say   func(format string, args ...any)
	turns map[string]*turn // of each process and server: of the fault that has or had it last

	mu      sync.Mutex // protects deeds
	deeds   []deed
	running sync.WaitGroup
}

// turn is a fault's time at a process or server.
type turn struct {
	over chan struct{} // closed when it ended
	free time.Time     // when the next fault may begin; set before over is closed
}

// direct returns when every fault has begun and ended. When the context ends first, those that have begun are undone at
// once and the rest is left out.
func (d *director) direct(ctx context.Context, plan []Step) {
	began := time.Now()
	// How far the run is behind the plan: on a busy machine a server needs longer to come back than the plan has for it, and
	// losses wait until they are witnessed.
	late := time.Duration(0)
	for _, step := range plan {
		sleep(ctx, time.Until(began.Add(step.At+late)))
		waiting := time.Now()
		d.awaitTurn(ctx, step)
		if traits[step.Kind].loses {
			d.stage.awaitWitnessed(ctx)
		}
		late += time.Since(waiting)
		if ctx.Err() != nil {
			break
		}
		own := d.takeTurn(step)
		d.running.Go(func() {
			d.carryOut(ctx, step)
			if own.free = time.Now(); traits[step.Kind].loses {
				own.free = own.free.Add(lossTail)
			}
			close(own.over)
		})
	}
	d.running.Wait()
}

// awaitTurn waits until the faults before at the same processes and servers are over: two at once would hide each other, and
// one that meets a server which is not there yet would never have happened.
func (d *director) awaitTurn(ctx context.Context, step Step) {
	for _, name := range step.occupies() {
		before := d.turns[name]
		if before == nil {
			continue
		}
		select {
		case <-before.over:
			sleep(ctx, time.Until(before.free))
		case <-ctx.Done():
			return
		}
	}
}

func (d *director) takeTurn(step Step) *turn {
	own := &turn{over: make(chan struct{})}
	for _, name := range step.occupies() {
		d.turns[name] = own
	}
	return own
}

func (d *director) carryOut(ctx context.Context, step Step) {
	fault := d.stage.newFault(step)
	done := deed{Step: step, began: time.Now()}
	doing, cancel := context.WithTimeout(ctx, doLimit)
	err := fault.do(doing)
	cancel()
	if err == nil {
		sleep(ctx, step.For)
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	hits, undoErr := fault.undo(undoing)
	done.ended, done.hits, done.err = time.Now(), hits, errors.Join(err, undoErr)
	d.say("%s: %d hits %s", step, hits, wrong(done.err))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deeds = append(d.deeds, done)
}

func wrong(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
