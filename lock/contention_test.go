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

// maxCommands is how many commands a transfer may cost: about three, and some renewals.
const maxCommands = 3.5

// A transfer costs the server the same number of commands however many wait: only the waiter that gets the lock is
// woken.
func TestACrowdIsNoHeavierThanOne(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no")
	perTransfer := map[int]float64{}
	for try, waiters := range []int{1, 50, 500, 500, 500} { // stalling for half a second makes all waiters poll
		if waiters == 500 && perTransfer[500] > 0 && perTransfer[500] <= maxCommands {
			break
		}
		f := &fixture{T: t, rdb: testkit.Client(t, server.URL()), prefix: fmt.Sprint("crowd-", try)}
		ctx := t.Context()
		f.ctx = ctx
		clients := []*lock.Client{f.client(), f.client()}
		for _, l := range clients { // each subscribes
			h := must(l.Mutex(f.key("subscription")).Lock(ctx))(t)
			if _, err := l.Mutex(f.key("subscription")).Lock(ctx, lock.Wait(time.Millisecond)); err == nil {
				t.Fatal("no wait")
			}
			f.unlock(h)
		}
		first := must(clients[0].Mutex(f.key("a")).Lock(ctx))(t)
		began := f.commands()
		var wg sync.WaitGroup
		for i := range waiters {
			m := clients[i%len(clients)].Mutex(f.key("a"))
			wg.Go(func() {
				noErr(t, lockAndUnlock(ctx, m))
			})
		}
		f.awaitQueue(f.key("a")+":queue", waiters)
		f.unlock(first)
		wg.Wait()
		perTransfer[waiters] = float64(f.commands()-began) / float64(waiters)
		t.Logf("%d waiters: %.2f commands for each transfer", waiters, perTransfer[waiters])
	}
	if perTransfer[500] > maxCommands {
		t.Errorf("%.2f commands for each transfer with 500 waiters, want about 3", perTransfer[500])
	}
}

// commands counts what lock clients send: scripts, and the subscription.
func (f *fixture) commands() int {
	f.Helper()
	info := must(f.rdb.Info(f.ctx, "commandstats").Result())(f)
	return calls(info, "evalsha") + calls(info, "eval") + calls(info, "subscribe")
}

// Without any message (an ACL forbids pub/sub), waiters poll.
func TestPollingIsEnough(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t, "appendonly no", "user default on nopass ~* resetchannels +@all")
	f := &fixture{T: t, ctx: t.Context(), rdb: testkit.Client(t, server.URL()), prefix: "deaf"}
	l := f.client()
	for name, m := range f.mutexes(l, "a") {
		first := must(m.Lock(f.ctx))(t)
		done := make(chan error, 1)
		go func() { done <- lockAndUnlock(f.ctx, m) }()
		f.awaitQueue(f.queueOf(m, name), 1)
		f.unlock(first)
		select {
		case err := <-done:
			noErr(t, err, "%s", name)
		case <-time.After(callLimit):
			t.Fatalf("%s: the waiter did not get it", name)
		}
	}
}

// TestASubscriptionThatIsCutIsMadeAnew: waiters are woken by messages again, and do not poll forever.
func TestASubscriptionThatIsCutIsMadeAnew(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	holder, waiter := lock.New(rdb), lock.New(rdb)
	t.Cleanup(func() { _ = holder.Close(); _ = waiter.Close() })
	h := must(holder.Mutex("a").Lock(t.Context()))(t)
	got := make(chan error, 1)
	go func() { got <- lockAndUnlock(t.Context(), waiter.Mutex("a")) }()
	listens := func() bool { return len(rdb.PubSubChannels(t.Context(), "lock:*").Val()) == 1 }
	testkit.Eventually(t, time.Minute, "the waiter listens", listens)
	for range 3 {
		if n, err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n != 1 {
			t.Fatalf("killed %d subscriptions, %v, want 1", n, err)
		}
		testkit.Eventually(t, time.Minute, "the waiter listens again", listens)
	}
	check(t, h.Unlock(t.Context()))
	check(t, <-got)
	f := &fixture{T: t, ctx: t.Context(), rdb: rdb, prefix: "cut"}
	for range 10 { // a machine that stalls for half a second makes the waiter poll after all
		if f.transferredByMessage(holder, waiter) {
			return
		}
	}
	t.Error("the waiter gets no message and polls")
}

// transferredByMessage reports whether a waiter got the lock by the message alone: only the unlock was sent.
func (f *fixture) transferredByMessage(holder, waiter *lock.Client) bool {
	f.Helper()
	key := f.key("a")
	h := must(holder.Mutex(key).Lock(f.ctx))(f)
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
	f.awaitQueue(key+":queue", 1)
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

// TestASubscriptionThatIsSilentIsMadeAnew: a quiet subscription is pinged, and one that does not reply is replaced. A
// client can't see that its connection is dead while nothing arrives.
func TestASubscriptionThatIsSilentIsMadeAnew(t *testing.T) {
	t.Parallel()
	n := network(t, -1)
	made := &atomic.Int32{}
	n.behind.AddHook(dials{made: made})
	holder, waiter := n.client(), n.lockClient()
	h := must(holder.Mutex(n.key("a")).Lock(n.ctx))(t)
	waiting, giveUp := context.WithCancel(n.ctx)
	defer giveUp()
	waited := make(chan error, 1)
	go func() { waited <- errOf(waiter.Mutex(n.key("a")).Lock(waiting)) }()
	info := func(command string) int {
		return calls(n.rdb.Info(n.ctx, "commandstats").Val(), command)
	}
	testkit.Eventually(t, callLimit, "the waiter listens", func() bool { return info("subscribe") > 0 })
	giveUp() // what is quiet from here on is the subscription alone
	if <-waited == nil {
		t.Fatal("no wait")
	}
	pings := info("ping")
	testkit.Eventually(t, callLimit, "a sign of life is asked for", func() bool { return info("ping") > pings })
	n.proxy.Freeze()
	listened, before := info("subscribe"), made.Load()
	testkit.Eventually(t, callLimit, "another connection", func() bool { return made.Load() > before })
	n.proxy.Thaw()
	testkit.Eventually(t, callLimit, "the waiter listens again", func() bool { return info("subscribe") > listened })
	n.unlock(h)
}
