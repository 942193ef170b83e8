package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sortable is a Locker that has one key.
type sortable interface {
	Locker
	sortKey() string
	reentrant() bool
}

func (m Mutex) sortKey() string       { return m.key }
func (m Mutex) reentrant() bool       { return true }
func (m RWMutex) sortKey() string     { return m.shared.key }
func (m RWMutex) reentrant() bool     { return false }
func (s Semaphore) sortKey() string   { return s.shared.key }
func (s Semaphore) reentrant() bool   { return false }
func (m QuorumMutex) sortKey() string { return m.key }
func (m QuorumMutex) reentrant() bool { return false }

// MaxAll bounds the locks of one All: they are taken one after the other.
const MaxAll = 100

// allLocks is what All returns.
type allLocks []Locker

// All combines several locks of this package into one: any kinds, on any clients, with different keys. They are taken
// one after the other in the order of their keys, however they are listed, so that two callers who want the same locks
// can't deadlock. Each costs a round trip. The Hold is lost when one of them is. It has no fence: take the single locks
// where a store checks one. With As, the owner enters those locks that know owners.
func All(locks ...Locker) Locker { return allLocks(locks) }

func (a allLocks) Lock(ctx context.Context, options ...CallOption) (Hold, error) {
	return a.acquire(ctx, Locker.Lock, options)
}

func (a allLocks) TryLock(ctx context.Context, options ...CallOption) (Hold, error) {
	return a.acquire(ctx, Locker.TryLock, options)
}

// lockMethod is Locker.Lock or Locker.TryLock.
type lockMethod func(Locker, context.Context, ...CallOption) (Hold, error)

func (a allLocks) acquire(ctx context.Context, lock lockMethod, options []CallOption) (Hold, error) {
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
		if !l.reentrant() {
			these = append(slices.Clone(these), As(Owner{}))
		}
		h, err := lock(l, ctx, these...)
		if err != nil {
			for _, m := range slices.Backward(members) {
				err = errors.Join(err, m.Unlock(ctx))
			}
			return nil, fmt.Errorf("%.100q: %w", l.sortKey(), err)
		}
		members = append(members, h.(member))
	}
	return newGroup(ctx, members, len(members)), nil
}

func (a allLocks) sorted() ([]sortable, error) {
	if err := checkCount("locks", int64(len(a)), MaxAll); err != nil {
		return nil, err
	}
	locks := make([]sortable, 0, len(a))
	for _, l := range a {
		one, ok := l.(sortable)
		if !ok {
			return nil, fmt.Errorf("lock: All takes locks of this package with one key each, not %T", l)
		}
		locks = append(locks, one)
	}
	slices.SortFunc(locks, func(x, y sortable) int { return strings.Compare(x.sortKey(), y.sortKey()) })
	for i := 1; i < len(locks); i++ {
		if locks[i].sortKey() == locks[i-1].sortKey() {
			return nil, fmt.Errorf("%w: All names %.100q twice", ErrBadKey, locks[i].sortKey())
		}
	}
	return locks, nil
}
