package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/faultnet"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/lock"
)

// council is five servers, each behind a proxy.
type council struct {
	*testing.T
	ctx     context.Context
	servers []*localservers.Redis
	proxies []*faultnet.Proxy
}

const (
	councilSize = 5
	quorumTTL   = 5 * time.Second
)

// newCouncil starts the servers.
func newCouncil(t *testing.T) *council {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*callLimit)
	t.Cleanup(cancel)
	c := &council{T: t, ctx: ctx}
	for range councilSize {
		server := testkit.PrivateRedis(t, "appendonly no")
		proxy := must(faultnet.Listen(server.URL()))(t)
		t.Cleanup(func() { _ = proxy.Close() })
		c.servers, c.proxies = append(c.servers, server), append(c.proxies, proxy)
	}
	return c
}

// quorum is one more process that uses the servers.
func (c *council) quorum() lock.Servers {
	c.Helper()
	clients := make([]*lock.Client, councilSize)
	for i := range clients {
		clients[i] = lock.New(testkit.Client(c, c.proxies[i].URL()), lock.WithTTL(quorumTTL))
		c.Cleanup(func() {
			c.proxies[i].Heal()
			c.proxies[i].Thaw()
			_ = clients[i].Close()
		})
	}
	return lock.Quorum(clients...)
}

func (c *council) kill(i int) {
	c.Helper()
	check(c, c.servers[i].Kill())
}

func (c *council) restart(i int) {
	c.Helper()
	check(c, c.servers[i].Restart(c.ctx))
}

// lock waits for the quorum, and for the servers to be old enough.
func (c *council) lock(m lock.QuorumMutex) lock.Hold {
	c.Helper()
	return must(m.Lock(c.ctx))(c)
}

func TestYoungServersDoNotVote(t *testing.T) {
	c := newCouncil(t)
	m := c.quorum().Mutex("a")
	wantErr(t, errOf(m.TryLock(c.ctx)), lock.ErrNotAcquired, "locked by servers that have just begun")
	h := c.lock(m)
	// A majority dies and comes back without its data. All die first: one that was back and old enough before the last
	// died would vote for the holder, and rightly.
	for i := range 3 {
		c.kill(i)
	}
	for i := range 3 {
		c.restart(i)
	}
	err := errOf(c.quorum().Mutex("a").TryLock(c.ctx))
	wantErr(t, err, lock.ErrNotAcquired, "two hold it: the restarted servers voted at once")
	next := c.lock(c.quorum().Mutex("a")) // once they may vote
	if h.Context().Err() == nil {
		t.Error("the first holder still believes")
	}
	noErr(t, next.Unlock(c.ctx))
}

// A minority of dead or frozen servers changes nothing; the lock stays, and is repaired when they are back.
func TestAQuorumOutlivesAMinority(t *testing.T) {
	c := newCouncil(t)
	for try := 1; !c.outlivesAMinority(fmt.Sprint(try)); try++ {
		if try == 3 { // a machine that stalls for two seconds loses a lease; not three times
			t.Fatal("the lock was lost each time")
		}
	}
}

// outlivesAMinority returns false when the lease was lost.
func (c *council) outlivesAMinority(key string) bool {
	h := c.lock(c.quorum().Mutex(key))
	lasts := func(what string, is func() bool) bool {
		testkit.Eventually(c, callLimit, what, func() bool { return h.Context().Err() != nil || is() })
		return h.Context().Err() == nil
	}
	renewedFor := func(d time.Duration) func() bool {
		from := h.ValidUntil()
		return func() bool { return h.ValidUntil().Sub(from) > d }
	}
	c.kill(0)
	c.proxies[1].Freeze()
	renewed := lasts("renewals without two servers", renewedFor(2*quorumTTL))
	if _, err := c.quorum().Mutex(key).TryLock(c.ctx); renewed && !errors.Is(err, lock.ErrNotAcquired) {
		c.Errorf("a second holder: %v", err)
	}
	c.restart(0)
	c.proxies[1].Thaw()
	first := testkit.Client(c, c.servers[0].URL())
	mended := lasts("the restarted server to vote", func() bool {
		value := first.Get(c.ctx, key).Val()
		return uptime(first.Info(c.ctx, "server").Val()) > quorumTTL+2*time.Second && len(value) > 17 && value[16] != '-'
	})
	c.proxies[3].Cut() // two others: without the repaired ones there is no majority
	c.proxies[4].Cut()
	kept := lasts("renewals by the mended ones", renewedFor(quorumTTL))
	if err := h.Unlock(c.ctx); err != nil && kept {
		c.Error(err)
	}
	c.proxies[3].Heal()
	c.proxies[4].Heal()
	return renewed && mended && kept
}

// Without a majority the holder's context ends before anybody else can hold it.
func TestAQuorumIsLostWithTheMajority(t *testing.T) {
	c := newCouncil(t)
	h := c.lock(c.quorum().Mutex("a"))
	work := h.Context()
	for i := range 3 {
		c.proxies[i].Freeze()
	}
	near := make([]*lock.Client, councilSize) // past the proxies
	for i := range near {
		near[i] = lock.New(testkit.Client(t, c.servers[i].URL()), lock.WithTTL(quorumTTL))
		t.Cleanup(func() { _ = near[i].Close() })
	}
	next := must(lock.Quorum(near...).Mutex("a").Lock(c.ctx))(t)
	if work.Err() == nil || !errors.Is(context.Cause(work), lock.ErrLeaseLost) {
		t.Errorf("the first holder's context: %v, cause %v", work.Err(), context.Cause(work))
	}
	wantErr(t, h.Unlock(c.ctx), lock.ErrNotHeld, "late unlock")
	noErr(t, next.Unlock(c.ctx))
}

// Several processes want the lock while servers die, come back and are cut off: never two at once.
func TestAQuorumUnderFire(t *testing.T) {
	c := newCouncil(t)
	c.lock(c.quorum().Mutex("warm")) // they are old enough
	var inside, won atomic.Int32
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		m := c.quorum().Mutex("a")
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, err := m.Lock(c.ctx, lock.Wait(time.Second))
				if err != nil {
					continue
				}
				if n := inside.Add(1); n != 1 && h.Context().Err() == nil {
					t.Errorf("%d inside", n)
				}
				won.Add(1)
				inside.Add(-1)
				_ = h.Unlock(c.ctx) // some servers are away
			}
		})
	}
	for round := range 2 {
		i, j := round%councilSize, (round+2)%councilSize
		c.kill(i)
		c.proxies[j].Cut()
		before := won.Load()
		taken := func() bool { return won.Load() > before+3 }
		testkit.Eventually(t, callLimit, fmt.Sprintf("the lock to be taken in round %d", round), taken)
		c.proxies[j].Heal()
		c.restart(i)
		// The next to die must not be the third one missing: a restarted server does not vote for the length of a
		// lease.
		testkit.Eventually(t, callLimit, "the restarted server to vote", func() bool {
			info := testkit.Client(t, c.servers[i].URL()).Info(c.ctx, "server").Val()
			return uptime(info) > quorumTTL+2*time.Second
		})
	}
	close(stop)
	wg.Wait()
	t.Logf("%d times held, by one at a time", won.Load())
}
