package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/internal/programs"
	"sluice/internal/faultnet"
	"sluice/internal/localservers"
)

const (
	readyLimit = 45 * time.Second       // a member's start: it waits for servers that are away itself
	restPause  = 100 * time.Millisecond // between two starts of a member that ends by itself
)

// actor is one part of the cast: an API or a worker. When its process ends another one takes the part.
type actor struct {
	name    string
	command string // api or worker
	environ []string
	servers *localservers.Servers
	front   *faultnet.Proxy // between buyers and an API; nil for a worker
	hear    func(programs.Line)

	mu      sync.Mutex // protects the rest
	member  *programs.Process
	ready   chan struct{} // closed while the process is ready
	doomed  bool          // we killed the process, or are about to
	held    chan struct{} // closed when the next process may start; nil when it may
	died    time.Time     // when the last process ended
	crashes []string      // processes that ended by themselves after they had been ready
}

// play keeps the part filled until the context ends, then stops who plays it.
func (a *actor) play(ctx context.Context) error {
	for ctx.Err() == nil {
		a.awaitPermission(ctx)
		m, err := programs.Launch(a.servers, a.name, a.command, a.environ, a.hear)
		if err != nil {
			return err // servers that are closed, or a machine out of processes
		}
		a.enter(m)
		if err := a.perform(ctx, m); err != nil && ctx.Err() == nil {
			sleep(ctx, restPause)
		}
		a.exit()
	}
	return nil
}

// perform lasts as long as the process does. An error says that it never got ready.
func (a *actor) perform(ctx context.Context, m *programs.Process) error {
	starting, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := m.Await(starting); err != nil {
		return errors.Join(err, m.Kill())
	}
	if a.front != nil {
		if err := a.front.Retarget(m.URL()); err != nil {
			return errors.Join(err, m.Kill())
		}
	}
	a.serve()
	select {
	case <-m.Exited():
		a.note(m)
		return nil
	case <-ctx.Done():
		return m.Stop(context.WithoutCancel(ctx))
	}
}

func (a *actor) awaitPermission(ctx context.Context) {
	a.mu.Lock()
	held := a.held
	a.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
}

func (a *actor) enter(m *programs.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.member, a.doomed = m, false
}

func (a *actor) serve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.ready)
}

func (a *actor) exit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.member, a.died = nil, time.Now()
	select {
	case <-a.ready:
		a.ready = make(chan struct{})
	default:
	}
}

// note keeps the end of a process that nobody killed: no fault may cause that once it is ready.
func (a *actor) note(m *programs.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.doomed {
		a.crashes = append(a.crashes, fmt.Sprintf("%s (process %d) ended by itself", a.name, m.PID()))
	}
}

func (a *actor) lastDeath() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.died
}

// running returns the process once it is ready, waiting for it as long as the context allows.
func (a *actor) running(ctx context.Context) (*programs.Process, error) {
	for {
		a.mu.Lock()
		m, ready := a.member, a.ready
		a.mu.Unlock()
		select {
		case <-ready:
			if m != nil {
				return m, nil
			}
			sleep(ctx, time.Millisecond)
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is not there: %w", a.name, ctx.Err())
		}
	}
}

// kill ends the process with SIGKILL. Nobody takes its part until release.
func (a *actor) kill(ctx context.Context) error {
	m, err := a.running(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.doomed, a.held = true, make(chan struct{})
	a.mu.Unlock()
	return m.Kill()
}

func (a *actor) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held != nil {
		close(a.held)
		a.held = nil
	}
}
