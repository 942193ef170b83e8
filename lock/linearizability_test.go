package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"sluice/lock"
)

// event is what a client did to a lock, as input of the model.
type event struct {
	kind  string // take, free: as replied; lapse: a lease that ran out
	who   int    // identifies one acquisition
	write bool
	fence int64
}

// lockState is the model: who holds it, and the highest fence given.
type lockState struct {
	readers string // sorted names, so that states can be compared
	writer  int    // 0: none
	fence   int64
}

// lockModel is a read-write lock of so many readers; a mutex has writers only, a semaphore readers only.
func lockModel(most int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, e := state.(lockState), input.(event)
			name := fmt.Sprintf("%06d ", e.who)
			if e.kind != "take" {
				switch {
				case e.write && s.writer == e.who:
					s.writer = 0
					return true, s
				case !e.write:
					if before, after, ok := cutName(s.readers, name); ok {
						s.readers = before + after
						return true, s
					}
				}
				return false, s
			}
			if e.write {
				if s.writer != 0 || s.readers != "" || e.fence <= s.fence {
					return false, s
				}
				s.writer, s.fence = e.who, e.fence
				return true, s
			}
			if s.writer != 0 || len(s.readers)/len(name) >= most {
				return false, s
			}
			s.readers = insertName(s.readers, name)
			return true, s
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

func cutName(names, name string) (before, after string, ok bool) {
	for i := 0; i+len(name) <= len(names); i += len(name) {
		if names[i:i+len(name)] == name {
			return names[:i], names[i+len(name):], true
		}
	}
	return names, "", false
}

func insertName(names, name string) string {
	i := 0
	for i < len(names) && names[i:i+len(name)] < name {
		i += len(name)
	}
	return names[:i] + name + names[i:]
}

// recorder keeps a history.
type recorder struct {
	began time.Time
	mu    sync.Mutex // protects the rest
	all   []porcupine.Operation
	last  int
}

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

func (r *recorder) name() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return r.last
}

func (r *recorder) add(e event, call, ret int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, porcupine.Operation{ClientId: e.who, Input: e, Call: call, Return: ret})
}

// use takes a lock, holds it for an instant, and unlocks it or lets its lease end. Failures take nothing.
func (r *recorder) use(ctx context.Context, write bool, take lockFunc, random *rand.Rand) {
	e := event{kind: "take", who: r.name(), write: write}
	var options []lock.CallOption
	lapses := random.IntN(8) == 0
	if lapses {
		options = append(options, lock.Lease(30*time.Millisecond))
	}
	if random.IntN(4) == 0 {
		options = append(options, lock.Wait(time.Duration(1+random.IntN(10))*time.Millisecond)) // some give up in the queue
	}
	call := r.now()
	h, err := take(ctx, options...)
	if err != nil {
		return
	}
	e.fence = h.Fence()
	got := r.now()
	r.add(e, call, got)
	e.kind = "free"
	if lapses {
		<-h.Context().Done()
		e.kind = "lapse"
		r.add(e, got, max(got, int64(h.ValidUntil().Sub(r.began)))) // over by then, even if noticed later
		return
	}
	time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
	call = r.now()
	if err := h.Unlock(ctx); err == nil {
		r.add(e, call, r.now())
	} else {
		r.add(e, got, max(got, int64(h.ValidUntil().Sub(r.began))))
	}
}

func (r *recorder) verdict(model porcupine.Model) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, r.all, 3*time.Minute)
}

const historySeed = 11

// However clients interleave, there is an order in which a single lock in one process would have given the same
// replies.
func TestHistoriesAreLinearizable(t *testing.T) {
	for name, kind := range map[string]struct {
		most int
		side func(l *lock.Client, key string, random *rand.Rand) (write bool, take lockFunc)
	}{
		"mutex": {0, func(l *lock.Client, key string, _ *rand.Rand) (bool, lockFunc) {
			return true, l.Mutex(key).Lock
		}},
		"fair": {0, func(l *lock.Client, key string, _ *rand.Rand) (bool, lockFunc) {
			return true, l.FairMutex(key).Lock
		}},
		"rwmutex": {1 << 30, func(l *lock.Client, key string, random *rand.Rand) (bool, lockFunc) {
			if random.IntN(4) == 0 {
				return true, l.RWMutex(key).Lock
			}
			return false, l.RWMutex(key).RLock
		}},
		"semaphore": {3, func(l *lock.Client, key string, _ *rand.Rand) (bool, lockFunc) {
			return false, l.Semaphore(key, 3).Lock
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r := &recorder{began: time.Now()}
			var wg sync.WaitGroup
			for i := range uint64(8) {
				l, random := f.client(), rand.New(rand.NewPCG(historySeed, i))
				wg.Go(func() {
					for range 25 {
						write, take := kind.side(l, f.key("a"), random)
						r.use(f.ctx, write, take, random)
					}
				})
			}
			wg.Wait()
			t.Logf("recorded in %s", time.Since(r.began))
			if got := r.verdict(lockModel(kind.most)); got != porcupine.Ok {
				t.Errorf("a history of %d steps (seed %d): %s", len(r.all), historySeed, got)
			}
			if len(r.all) < 100 {
				t.Errorf("only %d steps were recorded", len(r.all))
			}
		})
	}
}

// The checker must be able to reject: a lock as in the fourth step of the guide (SET NX PX, work that outlives the
// lease, DEL) lets two holders in, and its history is rejected.
func TestABrokenLockIsRejected(t *testing.T) {
	f := newFixture(t)
	r, key := &recorder{began: time.Now()}, f.key("a")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 10 {
				e := event{kind: "take", who: r.name(), write: true, fence: int64(1)}
				call := r.now()
				for !f.rdb.SetNX(f.ctx, key, i, 5*time.Millisecond).Val() {
					call = r.now()
					time.Sleep(time.Millisecond)
				}
				got := r.now()
				e.fence = got // rises with time: the holders are wrong, not the fences
				r.add(e, call, got)
				time.Sleep(15 * time.Millisecond)
				e.kind, call = "free", r.now()
				f.rdb.Del(f.ctx, key)
				r.add(e, call, r.now())
			}
		})
	}
	wg.Wait()
	if got := r.verdict(lockModel(0)); got != porcupine.Illegal {
		t.Errorf("a lock that two hold is %s", got)
	}
}
