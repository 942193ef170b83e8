package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/faultnet"
	"sluice/internal/testkit"
	"sluice/lock"
	scripts "sluice/lua/lock"
)

func TestTryLockManyTakesWhatIsFree(t *testing.T) {
	f := newFixture(t)
	keys := f.keysOf("a", "b", "c", "a")
	f.rdb.Set(f.ctx, keys[1], "another's", 0)

	before := time.Now()
	batch := must(lock.New(f.rdb, lock.WithTTL(5*time.Second)).TryLockMany(f.ctx, keys))(t)
	if want := []bool{true, false, true, true}; !slices.Equal(batch.Held, want) {
		t.Errorf("held: got %v, want %v", batch.Held, want)
	}
	want := []string{batch.Token, "another's", batch.Token, batch.Token}
	if got := f.values(keys); !slices.Equal(got, want) {
		t.Errorf("values: got %v, want %v", got, want)
	}
	if left := f.ttl(keys[0]); left <= 0 || left > 5*time.Second {
		t.Errorf("ttl: got %s, want up to 5s", left)
	}
	// 5 s minus the margin of 1 % and 2 ms, counted from before the request.
	const valid = 4948 * time.Millisecond
	if d := batch.ValidUntil.Sub(before); d < valid || batch.ValidUntil.After(time.Now().Add(valid)) {
		t.Errorf("valid for %s from before the call, want 4.948s from some instant inside it", d)
	}
}

func TestTokensAreUniqueToACall(t *testing.T) {
	f := newFixture(t)
	l := lock.New(f.rdb)
	first, err1 := l.TryLockMany(f.ctx, f.keysOf("a"))
	second, err2 := l.TryLockMany(f.ctx, f.keysOf("a", "b"))
	check(t, errors.Join(err1, err2))
	if first.Token == second.Token || !slices.Equal(second.Held, []bool{false, true}) {
		t.Errorf("got %+v, then %+v: one client's two calls are two holders", first, second)
	}
}

func TestUnlockManyFreesOnlyItsOwn(t *testing.T) {
	f := newFixture(t)
	l := lock.New(f.rdb)
	keys := f.keysOf("a", "b", "c", "d")
	batch := must(l.TryLockMany(f.ctx, keys))(t)
	f.rdb.Set(f.ctx, keys[1], batch.Token+"x", 0)
	f.rdb.Set(f.ctx, keys[2], batch.Token[:8], 0)
	f.rdb.Del(f.ctx, keys[3])
	f.rdb.RPush(f.ctx, keys[3], batch.Token)

	for range 2 { // a retry changes nothing more
		check(t, l.UnlockMany(f.ctx, keys, batch.Token))
		if got, want := f.values(keys), []string{"", batch.Token + "x", batch.Token[:8], ""}; !slices.Equal(got, want) {
			t.Errorf("values: got %q, want %q", got, want)
		}
	}
	if f.rdb.Exists(f.ctx, keys[3]).Val() != 1 {
		t.Error("a key that is no lock was deleted")
	}
}

func TestUnlockManyWorksAfterTheContextEnded(t *testing.T) {
	f := newFixture(t)
	l := lock.New(f.rdb)
	keys := f.keysOf("a")
	batch := must(l.TryLockMany(f.ctx, keys))(t)
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	check(t, l.UnlockMany(ended, keys, batch.Token))
	if got := f.values(keys); got[0] != "" {
		t.Errorf("value: got %q, want none", got[0])
	}
}

// The lease must be over for its holder before the server gives the lock to the next.
func TestLocksExpireAfterTheirHolderKnows(t *testing.T) {
	f := newFixture(t)
	ttl := time.Second
	l, keys := lock.New(f.rdb, lock.WithTTL(ttl)), f.keysOf("a", "b")
	first, err := l.TryLockMany(f.ctx, keys)
	if err != nil || !slices.Equal(first.Held, []bool{true, true}) {
		t.Fatalf("got %+v, %v", first, err)
	}
	next := lock.New(f.rdb) // for longer than the rest of the test
	var second lock.Batch
	testkit.Eventually(t, callLimit, "the locks to expire", func() bool {
		if second, err = next.TryLockMany(f.ctx, keys); err != nil {
			t.Fatal(err)
		}
		return second.Held[0] || second.Held[1]
	})
	if !time.Now().After(first.ValidUntil) {
		t.Errorf("taken by the second holder %s before the first one's time was over", time.Until(first.ValidUntil))
	}
	check(t, l.UnlockMany(f.ctx, keys, first.Token))
	if got := f.values(keys); !slices.Contains(got, second.Token) {
		t.Errorf("values: got %q, want the second holder's, whom the first must not unlock", got)
	}
}

// Of many clients that want the same locks, exactly one gets each.
func TestEachLockHasOneHolder(t *testing.T) {
	f := newFixture(t)
	const clients, locks = 8, 50
	keys := make([]string, locks)
	for i := range keys {
		keys[i] = f.key(fmt.Sprint(i))
	}
	batches, errs := make([]lock.Batch, clients), make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		l := lock.New(testkit.Redis(t))
		wg.Go(func() { batches[c], errs[c] = l.TryLockMany(f.ctx, rotate(keys, c*7)) })
	}
	wg.Wait()
	check(t, errors.Join(errs...))
	holders := map[string]int{}
	for c, batch := range batches {
		for i, key := range rotate(keys, c*7) {
			if batch.Held[i] {
				holders[key]++
			}
		}
	}
	for _, key := range keys {
		if holders[key] != 1 {
			t.Errorf("%s has %d holders, want 1", key, holders[key])
		}
	}
}

func rotate(keys []string, by int) []string {
	by %= len(keys)
	return append(slices.Clone(keys[by:]), keys[:by]...)
}

// A retry of the same request after a lost reply finds its own locks and leaves their TTL as the first run set it.
func TestTryManyTwiceIsOnce(t *testing.T) {
	f := newFixture(t)
	keys := f.keysOf("a", "b")
	f.rdb.Set(f.ctx, keys[1], "another's", 0)
	for run, ttl := range []time.Duration{2 * time.Second, time.Hour} {
		held, err := scripts.TryMany(f.ctx, f.rdb, keys, "token", ttl, false)
		if err != nil || !slices.Equal(held, []bool{true, false}) {
			t.Errorf("run %d: got %v, %v", run, held, err)
		}
		if left := f.ttl(keys[0]); left > 2*time.Second {
			t.Errorf("run %d: ttl %s, want that of the first run", run, left)
		}
	}
	if left := f.ttl(keys[1]); left >= 0 {
		t.Errorf("the lock of another has got a ttl: %s", left)
	}
}

// AllOrNone is repeated after a lost reply, when another holder has taken one of the locks in between: it takes none,
// and frees those that the first run took.
func TestAllOrNoneTwiceIsNone(t *testing.T) {
	f := newFixture(t)
	keys := f.keysOf("a", "b", "c")
	f.rdb.Set(f.ctx, keys[0], "token", time.Minute) // as the first run left it
	f.rdb.Set(f.ctx, keys[1], "another's", 0)
	held, err := scripts.TryMany(f.ctx, f.rdb, keys, "token", time.Minute, true)
	if err != nil || held[1] {
		t.Fatalf("got %v, %v, want the second one busy", held, err)
	}
	if got, want := f.values(keys), []string{"", "another's", ""}; !slices.Equal(got, want) {
		t.Errorf("values: got %q, want %q", got, want)
	}
}

// A key of another type counts as busy, and does not leave the batch half taken.
func TestTryLockManyWithAKeyOfAnotherType(t *testing.T) {
	f := newFixture(t)
	keys := f.keysOf("a", "b", "c")
	f.rdb.RPush(f.ctx, keys[1], "x")
	batch, err := lock.New(f.rdb).TryLockMany(f.ctx, keys)
	if err != nil || !slices.Equal(batch.Held, []bool{true, false, true}) {
		t.Errorf("got %v, %v", batch.Held, err)
	}
}

func TestFullBatch(t *testing.T) {
	f := newFixture(t)
	l := lock.New(f.rdb)
	keys := make([]string, lock.MaxBatch)
	for i := range keys {
		keys[i] = f.key(fmt.Sprint(i))
	}
	batch, err := l.TryLockMany(f.ctx, keys)
	if err != nil || slices.Contains(batch.Held, false) {
		t.Fatalf("got %v, %v", batch.Held, err)
	}
	check(t, l.UnlockMany(f.ctx, keys, batch.Token))
	if left := f.rdb.Exists(f.ctx, keys...).Val(); left != 0 {
		t.Errorf("%d locks are left", left)
	}
}

func TestBadCallsAreRefused(t *testing.T) {
	f := newFixture(t)
	l, none := lock.New(f.rdb), func(context.Context) error { t.Error("the job ran"); return nil }
	short := lock.New(f.rdb, lock.WithTTL(lock.MinTTL-1))
	calls := map[string]func() error{
		"no keys":         func() error { _, err := l.TryLockMany(f.ctx, nil); return err },
		"too many keys":   func() error { _, err := l.TryLockMany(f.ctx, make([]string, lock.MaxBatch+1)); return err },
		"short ttl":       func() error { _, err := short.TryLockMany(f.ctx, f.keysOf("a")); return err },
		"unlock nothing":  func() error { return l.UnlockMany(f.ctx, nil, "token") },
		"unlock no token": func() error { return l.UnlockMany(f.ctx, f.keysOf("a"), "") },
		"short tick":      func() error { _, err := l.RunOnce(f.ctx, f.key("a"), lock.MinTTL-1, none); return err },
	}
	for name, call := range calls {
		if call() == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if f.rdb.Exists(f.ctx, f.keysOf("a")...).Val() != 0 {
		t.Error("something was taken")
	}
}

func TestEveryCallSurvivesForgottenScripts(t *testing.T) {
	f := newFixture(t)
	l, keys := lock.New(f.rdb), f.keysOf("a")
	f.rdb.ScriptFlush(f.ctx)
	batch := must(l.TryLockMany(f.ctx, keys))(t)
	f.rdb.ScriptFlush(f.ctx)
	check(t, l.UnlockMany(f.ctx, keys, batch.Token))
	f.rdb.ScriptFlush(f.ctx)
	if ran, err := l.RunOnce(f.ctx, f.key("job"), time.Second, nothing); err != nil || !ran {
		t.Fatalf("got %t, %v", ran, err)
	}
}

// On a full server nothing is locked, the error is Redis' own, and locks held before can be freed.
func TestAFullServer(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t).URL())
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	l := lock.New(rdb)
	held := must(l.TryLockMany(ctx, []string{"a"}))(t)
	rdb.ConfigSet(ctx, "maxmemory", "1")
	if _, err := l.TryLockMany(ctx, []string{"b", "c"}); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("got error %v, want OOM", err)
	}
	noErr(t, l.UnlockMany(ctx, []string{"a"}, held.Token))
	if left := rdb.DBSize(ctx).Val(); left != 0 {
		t.Errorf("%d keys are left", left)
	}
}

// A paused server received the request and replies too late. The call ends with its context; once the server goes on,
// the locks without a holder are free before their TTL.
func TestTryLockManyFreesWhatALostReplyTook(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	rdb, observer := testkit.Client(t, server.URL()), testkit.Client(t, server.URL())
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	l := lock.New(rdb, lock.WithTTL(time.Hour))
	check(t, errOf(l.TryLockMany(ctx, []string{"warm"}))) // loads the script, opens a connection

	check(t, server.Pause())
	brief, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := l.TryLockMany(brief, []string{"a", "b"})
		done <- err
	}()
	<-brief.Done() // by now the request is in the paused server's socket
	check(t, server.Resume())
	if err := <-done; err == nil {
		t.Fatal("got no error")
	}
	testkit.Eventually(t, callLimit, "the locks to be free", func() bool {
		return observer.Exists(ctx, "a", "b").Val() == 0
	})
}

// A Redis client that retries: the first run takes the locks and its reply is lost, the second one is refused. The
// refusal does not show that nothing was taken.
func TestARefusalOfARepeatedCallLeavesNothing(t *testing.T) {
	t.Parallel()
	n := network(t, 3)
	l := lock.New(n.behind, lock.WithTTL(time.Hour))
	check(t, errOf(l.TryLockMany(n.ctx, []string{"warm"}))) // loads the script
	var once sync.Once
	n.proxy.Watch(func(e faultnet.Exchange) (pass bool) {
		pass = true
		if e.Moment == faultnet.After && bytes.Contains(e.Request, []byte(n.key("a"))) {
			once.Do(func() {
				pass = n.rdb.ConfigSet(n.ctx, "maxmemory", "1").Err() != nil
			})
		}
		return pass
	})
	n.proxy.Cut() // only connections made from now on are watched
	n.proxy.Heal()
	if _, err := l.TryLockMany(n.ctx, n.keysOf("a", "b")); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("got %v, want the refusal of the second run", err)
	}
	if got := n.values(n.keysOf("a", "b")); got[0] != "" || got[1] != "" {
		t.Errorf("locks are left: %q", got)
	}
}
