package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ordered is a Locker with a place among others.
type ordered interface {
	Locker
	order() string
	reenters() bool
}

func (m Mutex) order() string       { return m.key }
func (m Mutex) reenters() bool      { return true }
func (m RWMutex) order() string     { return m.shares.key }
func (m RWMutex) reenters() bool    { return false }
func (s Semaphore) order() string   { return s.shares.key }
func (s Semaphore) reenters() bool  { return false }
func (m QuorumMutex) order() string { return m.key }
func (m QuorumMutex) reenters() bool {
	return false
}

// MaxAll bounds the locks of one All: they are taken one after the other.
const MaxAll = 100

// several is what All returns.
type several []Locker

// All is several locks of this package as one: any kinds, on any clients, with different keys. They are taken one after the
// other in the order of their keys, whatever order they are named in, so that two who want the same can't wait for each other;
// a round trip for each. The Hold is lost when one of them is; it has no fence, take the single locks where a store checks one.
// With As, the owner enters those that know owners.
func All(locks ...Locker) Locker { return several(locks) }

func (a several) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return a.take(ctx, options, func(ctx context.Context, l Locker, o ...CallOption) (Hold, error) { return l.Lock(ctx, o...) })
}

func (a several) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return a.take(ctx, options, func(ctx context.Context, l Locker, o ...CallOption) (Hold, error) { return l.TryLock(ctx, o...) })
}

func (a several) take(ctx context.Context, options []CallOption, lock func(context.Context, Locker, ...CallOption) (Hold, error)) (Hold, error) {
	sorted, err := a.sorted()
	if err != nil {
		return nil, err
	}
	var o lockOptions
	for _, option := range options {
		option(&o)
	}
	var deadline time.Time
	if o.wait > 0 {
		deadline = time.Now().Add(o.wait) // of all together
	}
	members := make([]member, 0, len(sorted))
	for _, l := range sorted {
		these := options
		if !deadline.IsZero() {
			these = append(slices.Clone(these), Wait(max(time.Until(deadline), time.Nanosecond)))
		}
		if !l.reenters() {
			these = append(slices.Clone(these), As(Owner{}))
		}
		h, err := lock(ctx, l, these...)
		if err != nil {
			for _, m := range slices.Backward(members) {
				err = errors.Join(err, m.Unlock(ctx))
			}
			return nil, fmt.Errorf("%.100q: %w", l.order(), err)
		}
		members = append(members, h.(member))
	}
	return newGroup(ctx, members, len(members)), nil
}

func (a several) sorted() ([]ordered, error) {
	if err := checkCount("locks", int64(len(a)), MaxAll); err != nil {
		return nil, err
	}
	locks := make([]ordered, 0, len(a))
	for _, l := range a {
		one, ok := l.(ordered)
		if !ok {
			return nil, fmt.Errorf("lock: All takes locks of this package with one key each, not %T", l)
		}
		locks = append(locks, one)
	}
	slices.SortFunc(locks, func(x, y ordered) int { return strings.Compare(x.order(), y.order()) })
	for i := 1; i < len(locks); i++ {
		if locks[i].order() == locks[i-1].order() {
			return nil, fmt.Errorf("%w: All names %.100q twice", ErrBadKey, locks[i].order())
		}
	}
	return locks, nil
}
