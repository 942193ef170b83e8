package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/internal/buyers"
	"sluice/internal/faultnet"
	"sluice/internal/localservers"
	"sluice/internal/programs"
)

const (
	readyLimit = 45 * time.Second       // a process' start: it waits for servers that are away itself
	restart    = 100 * time.Millisecond // between two starts of a process that ends by itself
)

// process is an API or a worker that is started again whenever it has ended.
type process struct {
	name    string
	program programs.Program
	servers *localservers.Servers
	front   *faultnet.Proxy // between buyers and an API; nil for a worker

	mu      sync.Mutex // protects the rest
	now     *programs.Process
	ready   chan struct{} // closed while the process is ready
	doomed  bool          // we killed the process, or are about to
	blocked chan struct{} // closed when the next process may start; nil when it may
	crashes []string      // processes that ended by themselves after they had been ready
}

// keepRunning starts one after the other until the context ends, then stops the last one.
func (p *process) keepRunning(ctx context.Context) error {
	for ctx.Err() == nil {
		p.awaitRelease(ctx)
		now, err := programs.Launch(p.servers, p.program)
		if err != nil {
			return err // servers that are closed, or a machine out of processes
		}
		p.locked(func() { p.now, p.doomed = now, false })
		if err := p.serve(ctx, now); err != nil && ctx.Err() == nil {
			buyers.Sleep(ctx, restart)
		}
		p.locked(func() {
			p.now = nil
			select {
			case <-p.ready:
				p.ready = make(chan struct{})
			default:
			}
		})
	}
	return nil
}

func (p *process) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// serve lasts as long as the process does. An error says that it never got ready.
func (p *process) serve(ctx context.Context, now *programs.Process) error {
	starting, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	err := now.Await(starting)
	if err == nil && p.front != nil {
		err = p.front.Retarget(now.URL())
	}
	if err != nil {
		return errors.Join(err, now.Kill())
	}
	p.locked(func() { close(p.ready) })
	select {
	case <-now.Exited():
		p.locked(func() {
			if !p.doomed { // no fault may cause that once it is ready
				p.crashes = append(p.crashes, fmt.Sprintf("%s (process %d) ended by itself", p.name, now.PID()))
			}
		})
		return nil
	case <-ctx.Done():
		return now.Stop(context.WithoutCancel(ctx))
	}
}

func (p *process) awaitRelease(ctx context.Context) {
	p.mu.Lock()
	blocked := p.blocked
	p.mu.Unlock()
	if blocked == nil {
		return
	}
	select {
	case <-blocked:
	case <-ctx.Done():
	}
}

// running returns the process once it is ready, waiting for it as long as the context allows.
func (p *process) running(ctx context.Context) (*programs.Process, error) {
	for {
		p.mu.Lock()
		now, ready := p.now, p.ready
		p.mu.Unlock()
		select {
		case <-ready:
			if now != nil {
				return now, nil
			}
			buyers.Sleep(ctx, time.Millisecond)
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is not there: %w", p.name, ctx.Err())
		}
	}
}

// kill ends the process with SIGKILL. None takes its place until release.
func (p *process) kill(ctx context.Context) (hits int, err error) {
	now, err := p.running(ctx)
	if err != nil {
		return 0, err
	}
	p.locked(func() { p.doomed, p.blocked = true, make(chan struct{}) })
	return hit(now.Kill())
}

func (p *process) release() {
	p.locked(func() {
		if p.blocked != nil {
			close(p.blocked)
			p.blocked = nil
		}
	})
}
