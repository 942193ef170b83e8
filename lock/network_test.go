package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lock"
)

// badNetwork is a server of the test's own, with one client behind a proxy and one that bypasses it.
type badNetwork struct {
	*fixture
	server *localservers.Redis
	proxy  *faultnet.Proxy
	behind *redis.Client
}

// network starts it. Flushing to disk is off: nothing here depends on it, and it would slow the test down.
func network(t *testing.T, retries int) *badNetwork {
	t.Helper()
	server := testkit.PrivateRedis(t, "appendonly no")
	proxy := must(faultnet.Listen(server.URL()))(t)
	t.Cleanup(func() {
		noErr(t, proxy.Close())
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*callLimit)
	t.Cleanup(cancel)
	options := must(redis.ParseURL(proxy.URL()))(t)
	options.MaxRetries, options.ContextTimeoutEnabled, options.PoolSize = retries, true, 64
	options.PoolTimeout = callLimit
	behind := redis.NewClient(options)
	t.Cleanup(func() { _ = behind.Close() })
	f := &fixture{T: t, ctx: ctx, rdb: testkit.Client(t, server.URL()), prefix: "net"}
	return &badNetwork{f, server, proxy, behind}
}

// lockClient is a lock client behind the proxy.
func (n *badNetwork) lockClient(options ...lock.Option) *lock.Client {
	l := lock.New(n.behind, options...)
	n.Cleanup(func() {
		n.proxy.Thaw()
		n.proxy.Heal()
		_ = l.Close()
	})
	return l
}

const manyLocks = 1000

// The promise of the package: however the network fails, a holder's context has ended before anybody else holds the
// lock. A thousand locks at once.
func TestAHolderKnowsBeforeTheNextBegins(t *testing.T) {
	for name, fail := range map[string]func(*faultnet.Proxy){
		"frozen": (*faultnet.Proxy).Freeze,
		"cut":    (*faultnet.Proxy).Cut,
		"replies lost": func(p *faultnet.Proxy) {
			p.DropReplyTo("evalsha", 1<<30)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := network(t, -1)
			far, near := n.lockClient(lock.WithTTL(4*time.Second)), n.client(lock.WithTTL(time.Minute))
			holds := n.takeAll(far, manyLocks)
			works := make([]context.Context, manyLocks)
			for i, h := range holds {
				works[i] = h.Context()
			}
			alive := 0
			for _, work := range works {
				if work.Err() == nil {
					alive++
				}
			}
			if alive == 0 {
				t.Skip("the machine is too busy: every lease is over before the network failed")
			}
			fail(n.proxy)
			var known, late atomic.Int32
			each(holds, func(i int) {
				next, err := near.Mutex(n.key(fmt.Sprint(i))).Lock(n.ctx)
				began := time.Now()
				if err != nil {
					t.Error(err)
					return
				}
				lost := works[i].Err() != nil && errors.Is(context.Cause(works[i]), lock.ErrLeaseLost)
				if lost && holds[i].ValidUntil().Before(began) {
					known.Add(1)
				}
				if next.Fence() <= holds[i].Fence() {
					late.Add(1)
				}
				_ = next.Unlock(n.ctx) // a thousand at once on a busy machine: a late one expires
			})
			if known.Load() != manyLocks || late.Load() != 0 {
				t.Errorf("%d of %d holders knew in time; %d fences did not rise", known.Load(), manyLocks, late.Load())
			}
			t.Logf("%s: %d of %d holders knew before the next began", name, known.Load(), manyLocks)
		})
	}
}

// takeAll takes that many locks, some at a time, and retries as often as a busy machine requires.
func (n *badNetwork) takeAll(l *lock.Client, locks int) []lock.Hold {
	n.Helper()
	holds := make([]lock.Hold, locks)
	var next atomic.Int64
	each(make([]int, 32), func(int) {
		for i := next.Add(1) - 1; i < int64(locks); i = next.Add(1) - 1 {
			for holds[i] == nil && n.ctx.Err() == nil {
				holds[i], _ = l.Mutex(n.key(fmt.Sprint(i))).Lock(n.ctx)
			}
		}
	})
	if n.ctx.Err() != nil {
		n.Fatal("the locks were not taken in time")
	}
	return holds
}

// each calls f for every index at once.
func each[T any](of []T, f func(i int)) {
	var wg sync.WaitGroup
	for i := range of {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// A reply that is lost leaves nothing behind, with a client that retries and with one that does not.
func TestLostReplies(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint("retries ", retries), func(t *testing.T) {
			t.Parallel()
			n := network(t, retries)
			l := n.lockClient()
			for i := range 20 {
				m := l.Mutex(n.key(fmt.Sprint(i)))
				f := must(m.Lock(n.ctx))(t) // the script is known
				n.unlock(f)
				n.proxy.DropReplyTo("evalsha", 1)
				h, err := m.TryLock(n.ctx)
				if err != nil && retries > 0 {
					t.Fatalf("lock: %v", err)
				}
				if err == nil {
					n.proxy.DropReplyTo("evalsha", 1)
					n.unlock(h) // the reply is lost, and requested again
				}
				n.proxy.KeepReplies()
				n.unlock(must(m.TryLock(n.ctx))(t)) // nothing is held
			}
		})
	}
}

// A re-entry whose reply was lost is one entry; one unlock for each Hold frees the lock.
func TestAnEntryThatIsRepeatedCountsOnce(t *testing.T) {
	t.Parallel()
	n := network(t, 3)
	l, o := n.lockClient(), lock.NewOwner()
	m := l.Mutex(n.key("a"))
	n.unlock(must(m.Lock(n.ctx))(t))                  // both scripts are loaded
	for _, lost := range []string{"lock", "unlock"} { // one of them: a fault of both would cancel out
		n.proxy.KeepReplies()
		outer := must(m.Lock(n.ctx, lock.As(o)))(t)
		before := n.proxy.Lost()
		if lost == "lock" {
			n.proxy.DropReplyTo("evalsha", 1)
		}
		inner := must(m.Lock(n.ctx, lock.As(o)))(t)
		if lost == "unlock" {
			n.proxy.DropReplyTo("evalsha", 1)
		}
		n.unlock(inner)
		if n.proxy.Lost() != before+1 {
			t.Fatalf("%s: no reply was lost", lost)
		}
		wantErr(t, errOf(m.TryLock(n.ctx)), lock.ErrNotAcquired, "%s: left twice", lost)
		n.unlock(outer)
		n.unlock(must(m.TryLock(n.ctx))(t))
	}
}

// Ten thousand locks through a server that takes 200 ms for every reply: none is lost within twice their TTL. A machine
// that is busy with something else can stand still for a good part of that, so it is tried twice.
func TestTenThousandLocksAreRenewedThroughASlowServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes twice the TTL")
	}
	t.Parallel()
	const locks = 10_000
	for range 2 {
		lost, calls := renewedThroughASlowServer(t, locks)
		if calls > locks/10 {
			t.Errorf("%d calls renewed %d locks: they are not batched", calls, locks)
		}
		if lost == 0 {
			return
		}
		t.Logf("%d of %d locks were lost", lost, locks)
	}
	t.Error("locks were lost in both tries")
}

// renewedThroughASlowServer holds locks for twice their TTL on a server of their own, and returns how many were lost,
// and how many calls kept the others. The TTL leaves room for a renewal of all of them to take several seconds, which
// it does where a hundred processes of other tests want the same two cores.
func renewedThroughASlowServer(t *testing.T, locks int) (lost, calls int) {
	t.Helper()
	const ttl = 30 * time.Second
	n := network(t, -1)
	l := n.lockClient(lock.WithTTL(ttl))
	defer func() { _ = l.Close() }()
	holds := n.takeAll(l, locks)
	n.proxy.Slow(200 * time.Millisecond)
	before := n.calls()
	time.Sleep(2 * ttl) // the time is what is tested
	n.proxy.Slow(0)
	calls = n.calls() - before
	for _, h := range holds {
		if h.Context().Err() != nil {
			lost++
		}
	}
	t.Logf("%d calls of scripts kept %d locks for %s", calls, locks-lost, 2*ttl)
	return lost, calls
}

// calls is how many scripts the server has run.
func (f *fixture) calls() int {
	f.Helper()
	info := must(f.rdb.Info(f.ctx, "commandstats").Result())(f)
	return calls(info, "evalsha") + calls(info, "eval")
}
