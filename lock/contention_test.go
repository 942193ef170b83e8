package lock_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lock"
)

// mostCommands is how many a hand-over may cost: about three, and some that renew.
const mostCommands = 3.5

// However many wait, one hand-over costs the server as many commands: nobody is woken who does not get the lock.
func TestACrowdIsNoHeavierThanOne(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no")
	perHandOver := map[int]float64{}
	for try, waiters := range []int{1, 50, 500, 500, 500} { // a machine that stands still for half a second makes all ask
		if waiters == 500 && perHandOver[500] > 0 && perHandOver[500] <= mostCommands {
			break
		}
		f := &fixture{T: t, rdb: testkit.Client(t, server.URL()), prefix: fmt.Sprint("crowd-", try)}
		ctx := t.Context()
		f.ctx = ctx
		clients := []*lock.Client{f.client(), f.client()}
		for _, l := range clients { // each has its ear open
			h := must[lock.Hold](t)(l.Mutex(f.key("ear")).Lock(ctx))
			if _, err := l.Mutex(f.key("ear")).Lock(ctx, lock.Wait(time.Millisecond)); err == nil {
				t.Fatal("no wait")
			}
			f.unlock(h)
		}
		first := must[lock.Hold](t)(clients[0].Mutex(f.key("a")).Lock(ctx))
		began := f.commands()
		var wg sync.WaitGroup
		for i := range waiters {
			m := clients[i%len(clients)].Mutex(f.key("a"))
			wg.Go(func() {
				h, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		testkit.Eventually(t, callLimit, "all to wait", func() bool {
			return f.rdb.ZCard(ctx, f.key("a")+":queue").Val() == int64(waiters)
		})
		f.unlock(first)
		wg.Wait()
		perHandOver[waiters] = float64(f.commands()-began) / float64(waiters)
		t.Logf("%d waiters: %.2f commands for each hand-over", waiters, perHandOver[waiters])
	}
	if perHandOver[500] > mostCommands {
		t.Errorf("%.2f commands for each hand-over to 500 who wait, want about 3", perHandOver[500])
	}
}

// commands are those that lock clients send: scripts, and the subscription.
func (f *fixture) commands() int {
	f.Helper()
	info, err := f.rdb.Info(f.ctx, "commandstats").Result()
	if err != nil {
		f.Fatal(err)
	}
	return calls(info, "evalsha") + calls(info, "eval") + calls(info, "subscribe")
}

// Without a single message (pub/sub is cut off by an ACL), who waits polls.
func TestPollingIsEnough(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no", "user default on nopass ~* resetchannels +@all")
	f := &fixture{T: t, ctx: t.Context(), rdb: testkit.Client(t, server.URL()), prefix: "deaf"}
	l := f.client()
	for name, m := range f.mutexes(l, "a") {
		first := must[lock.Hold](t)(m.Lock(f.ctx))
		done := make(chan error, 1)
		go func() {
			h, err := m.Lock(f.ctx)
			if err == nil {
				err = h.Unlock(f.ctx)
			}
			done <- err
		}()
		testkit.Eventually(t, callLimit, "the waiter", func() bool { return f.rdb.ZCard(f.ctx, f.queueOf(m, name)).Val() == 1 })
		f.unlock(first)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(callLimit):
			t.Fatalf("%s: nobody came", name)
		}
	}
}

// TestASubscriptionThatIsCutIsMadeAnew: whoever waits is woken again, and does not poll for ever after.
func TestASubscriptionThatIsCutIsMadeAnew(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	holder, waiter := lock.New(rdb), lock.New(rdb)
	t.Cleanup(func() { _ = holder.Close(); _ = waiter.Close() })
	h, err := holder.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Mutex("a").Lock(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	listens := func() bool { return len(rdb.PubSubChannels(t.Context(), "lock:*").Val()) == 1 }
	testkit.Eventually(t, time.Minute, "the waiter listens", listens)
	for range 3 {
		if n, err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n != 1 {
			t.Fatalf("killed %d subscriptions, %v, want 1", n, err)
		}
		testkit.Eventually(t, time.Minute, "the waiter listens again", listens)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, ctx: t.Context(), rdb: rdb, prefix: "cut"}
	for range 10 { // a machine that stands still for half a second makes the waiter ask after all
		if f.handedOverUnasked(holder, waiter) {
			return
		}
	}
	t.Error("whoever waits hears nothing and polls")
}

// handedOverUnasked reports whether one who waits has the lock by the message alone: nothing but the unlock was sent.
func (f *fixture) handedOverUnasked(holder, waiter *lock.Client) bool {
	f.Helper()
	key := f.key("a")
	h := must[lock.Hold](f)(holder.Mutex(key).Lock(f.ctx))
	got := make(chan int, 1)
	go func() {
		next, err := waiter.Mutex(key).Lock(f.ctx)
		got <- f.commands()
		if err == nil {
			err = next.Unlock(f.ctx)
		}
		if err != nil {
			f.Error(err)
		}
		got <- 0
	}()
	testkit.Eventually(f, callLimit, "the waiter", func() bool { return f.rdb.ZCard(f.ctx, key+":queue").Val() == 1 })
	before := f.commands()
	f.unlock(h)
	after := <-got
	<-got
	return after == before+1
}

// dials counts the connections that a Redis client makes.
type dials struct {
	redis.Hook
	made *atomic.Int32
}

func (d dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d.made.Add(1)
		return next(ctx, network, address)
	}
}
func (dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestASubscriptionThatIsSilentIsMadeAnew: one that is quiet is asked for a sign of life, and one that gives none is given up.
// Nothing tells a client that its connection is dead, when nothing arrives.
func TestASubscriptionThatIsSilentIsMadeAnew(t *testing.T) {
	n := network(t, -1)
	made := &atomic.Int32{}
	n.behind.AddHook(dials{made: made})
	holder, waiter := n.client(), n.lockClient()
	h := must[lock.Hold](t)(holder.Mutex(n.key("a")).Lock(n.ctx))
	if _, err := waiter.Mutex(n.key("a")).Lock(n.ctx, lock.Wait(time.Second)); err == nil {
		t.Fatal("no wait")
	}
	info := func(command string) int {
		return calls(n.rdb.Info(n.ctx, "commandstats").Val(), command)
	}
	testkit.Eventually(t, callLimit, "the waiter listens", func() bool { return info("subscribe") > 0 })
	pings := info("ping")
	testkit.Eventually(t, callLimit, "a sign of life is asked for", func() bool { return info("ping") > pings })
	n.proxy.Freeze()
	listened, before := info("subscribe"), made.Load()
	testkit.Eventually(t, callLimit, "another connection", func() bool { return made.Load() > before })
	n.proxy.Thaw()
	testkit.Eventually(t, callLimit, "the waiter listens again", func() bool { return info("subscribe") > listened })
	n.unlock(h)
}
