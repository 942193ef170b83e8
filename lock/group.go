package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// member is a Hold that a group can be made of.
type member interface {
	Hold
	watch(func())
	alive() (until time.Time, good bool)
}

// group is a Hold made of several: it is valid while enough of them are. All needs every member, a quorum a majority.
type group struct {
	required int
	parent   context.Context

	mu      sync.Mutex // protects the rest
	members []member   // nil where a quorum currently has none
	ended   error
	work    context.Context
	cancel  context.CancelCauseFunc
	onEnd   func() // called when the group ends
	watcher func() // of a group around this one
}

func newGroup(ctx context.Context, members []member, need int) *group {
	g := &group{required: need, parent: ctx, members: members}
	g.work, g.cancel = context.WithCancelCause(ctx)
	for _, m := range members {
		if m != nil {
			m.watch(g.check)
		}
	}
	g.check()
	return g
}

// until returns when fewer than required will be valid.
func (g *group) until() (time.Time, bool) {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	var ends []time.Time
	for _, m := range members {
		if m == nil {
			continue
		}
		if end, good := m.alive(); good {
			ends = append(ends, end)
		}
	}
	if len(ends) < g.required {
		return time.Time{}, false
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[g.required-1], true
}

// check ends the group when too few members are left. Every member calls it when it ends.
func (g *group) check() {
	if _, good := g.until(); !good {
		g.end(ErrLeaseLost)
	}
	g.mu.Lock()
	watcher := g.watcher
	g.mu.Unlock()
	if watcher != nil {
		watcher()
	}
}

func (g *group) end(why error) (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil {
		return false
	}
	g.ended = why
	g.cancel(why)
	if g.onEnd != nil {
		g.onEnd()
	}
	return true
}

func (g *group) alive() (time.Time, bool) {
	until, good := g.until()
	g.mu.Lock()
	defer g.mu.Unlock()
	return until, good && g.ended == nil
}

func (g *group) watch(watcher func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watcher = watcher
}

// replace puts a new member in the place of a lost one.
func (g *group) replace(i int, m member) {
	g.mu.Lock()
	ended := g.ended != nil
	if !ended {
		g.members[i] = m
	}
	g.mu.Unlock()
	if ended {
		_ = m.Unlock(g.parent) // too late; at worst it lasts until its lease ends
		return
	}
	m.watch(g.check)
}

func (g *group) Context() context.Context { return workContext{g.work, g.check} }

// ValidUntil is zero when the group is lost.
func (g *group) ValidUntil() time.Time {
	until, _ := g.until()
	return until
}

// Fence is 0: the members have fences of their own.
func (g *group) Fence() int64 { return 0 }

func (g *group) Extend(ctx context.Context, d time.Duration) error {
	if err := checkTTL("extension", d); err != nil {
		return err
	}
	done, err := g.forEach(func(m member) error { return m.Extend(ctx, d) })
	if done < g.required {
		return err
	}
	if _, good := g.alive(); !good {
		return fmt.Errorf("%w: too few are left", ErrNotHeld)
	}
	return nil
}

func (g *group) Unlock(ctx context.Context) error {
	_, good := g.until()
	if !good {
		g.end(ErrLeaseLost)
	}
	first := g.end(errUnlocked)
	done, err := g.forEach(func(m member) error { return m.Unlock(ctx) })
	if !first && err == nil || !good {
		return errors.Join(errOver, err)
	}
	if done < g.required {
		return err
	}
	return nil
}

// forEach calls f for all members at once and returns for how many it succeeded.
func (g *group) forEach(f func(member) error) (done int, err error) {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	errs := make([]error, len(members))
	var calls sync.WaitGroup
	for i, m := range members {
		if m != nil {
			calls.Go(func() { errs[i] = f(m) })
		}
	}
	calls.Wait()
	for i, m := range members {
		if m != nil && errs[i] == nil {
			done++
		}
	}
	return done, errors.Join(errs...)
}
