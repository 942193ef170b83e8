package chaos

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"sluice/internal/buyers"
)

// kill kills processes; others take their places when the fault is over. It does not wait for them: none starts while a
// store is away, which may be the other fault.
func (r *run) kill(s step) fault {
	return fault{
		do: func(ctx context.Context) (hits int, err error) {
			ctx, cancel := context.WithTimeout(ctx, thereWait)
			defer cancel()
			for _, name := range struck(s.Target) {
				n, killErr := r.system.process(name).kill(ctx)
				hits, err = hits+n, errors.Join(err, killErr)
			}
			return hits, err
		},
		undo: func(context.Context) (int, error) {
			for _, name := range struck(s.Target) {
				r.system.process(name).release()
			}
			return 0, nil
		},
	}
}

// A worker fetches a batch every few milliseconds, and then has it for as long as it has to.
const leastBusy, mostBusy = 100 * time.Millisecond, 800 * time.Millisecond

// killBusy kills workers that have fetched a batch and can't persist it, because their connections to Postgres are
// cut: whatever they had acknowledged by then would be gone.
func (r *run) killBusy(s step) fault {
	kill := r.kill(s)
	each := func(do func(*link)) {
		for _, name := range struck(s.Target) {
			do(r.system.links[name+">postgres"])
		}
	}
	return fault{
		do: func(ctx context.Context) (int, error) {
			each((*link).Cut)
			buyers.Sleep(ctx, between(s.Random, leastBusy, mostBusy))
			return kill.do(ctx)
		},
		undo: func(ctx context.Context) (int, error) {
			each((*link).Heal)
			return kill.undo(ctx)
		},
	}
}

// A machine's connections are half-open for so long before its process is dead.
const leastDying, mostDying = 100 * time.Millisecond, 500 * time.Millisecond

// vanish takes the whole machine of an API away: nothing says goodbye, and the servers keep its connections until it
// is back. What it had sent by then arrives late, or never.
func (r *run) vanish(s step) fault {
	kill := r.kill(s)
	links := []*link{r.system.links["buyers>"+s.Target], r.system.links[s.Target+">postgres"]}
	if l := r.system.links[s.Target+">redis"]; l != nil { // there is none to a cluster
		links = append(links, l)
	}
	return fault{
		do: func(ctx context.Context) (int, error) {
			for _, l := range links {
				l.Freeze()
			}
			buyers.Sleep(ctx, between(s.Random, leastDying, mostDying))
			return kill.do(ctx)
		},
		undo: func(ctx context.Context) (int, error) {
			late := s.Random%2 == 0
			for _, l := range links {
				if !late {
					l.Cut() // what was in transit is gone
				}
				l.Thaw()
				if !late {
					l.Heal()
				}
			}
			return kill.undo(ctx)
		},
	}
}

// pauseProcess stops a process, long enough that others take over its work, and lets it go on.
func (r *run) pauseProcess(s step) fault {
	resume := func() error { return nil }
	return fault{
		do: func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, thereWait)
			defer cancel()
			p, err := r.system.process(s.Target).running(ctx)
			if err == nil {
				err = p.Pause()
			}
			if err != nil {
				return 0, err
			}
			resume = p.Resume
			return 1, nil
		},
		undo: func(context.Context) (int, error) { return 0, resume() },
	}
}

// killServer is a power cut at Redis or Postgres.
func killServer(server interface {
	Kill() error
	Restart(ctx context.Context) error
},
) fault {
	return fault{
		do:   func(context.Context) (int, error) { return hit(server.Kill()) },
		undo: func(ctx context.Context) (int, error) { return 0, server.Restart(ctx) },
	}
}

// pauseServer has Redis or Postgres stand still: connections stay open, and nothing answers.
func pauseServer(server interface {
	Pause() error
	Resume() error
},
) fault {
	return fault{
		do:   func(context.Context) (int, error) { return hit(server.Pause()) },
		undo: func(context.Context) (int, error) { return 0, server.Resume() },
	}
}

// wrongBy is how far a clock is set wrong, ahead or back: more than any lease, deadline or idle time in the code.
const wrongBy = time.Hour

// clocked is a server whose clock can be moved.
type clocked interface {
	SetClock(offset time.Duration) error
}

// wrongClock sets a server's clock ahead or back, and then right. A server that was replaced meanwhile is right anyway.
func wrongClock(s step, current func() clocked) fault {
	offset := wrongBy
	if s.Random%2 == 0 {
		offset = -wrongBy
	}
	var server clocked
	return fault{
		do: func(context.Context) (int, error) {
			server = current()
			return hit(server.SetClock(offset))
		},
		undo: func(context.Context) (int, error) {
			err := server.SetClock(0)
			if server != current() {
				return 0, nil
			}
			return 0, err
		},
	}
}

// freezeAll makes every process' connections to a server half-open.
func (r *run) freezeAll(server string) fault {
	each := func(do func(*link)) (n int) {
		for name, l := range r.system.links {
			if strings.HasSuffix(name, ">"+server) && !strings.HasPrefix(name, observer) {
				do(l)
				n++
			}
		}
		return n
	}
	return fault{
		do:   func(context.Context) (int, error) { return each((*link).Freeze), nil },
		undo: func(context.Context) (int, error) { each((*link).Thaw); return 0, nil },
	}
}

// awaitProcesses waits until all are there.
func (s *system) awaitProcesses(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.processes {
		all.Go(func() { _, _ = p.running(ctx) }) // one that is missing is missed by its faults, which say so
	}
	all.Wait()
}
