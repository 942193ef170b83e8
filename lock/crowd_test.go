package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

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
}
