package lock_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua/lock"
)

// fixture is one lock of each kind under a prefix of its own, and a subscriber that receives every message.
type fixture struct {
	*testing.T
	ctx    context.Context
	rdb    *redis.Client
	prefix string
	locks  lock.Keys
	shares lock.ShareKeys
}

const (
	ttl     = time.Minute
	channel = "heard" // with the prefix: where every waiter is woken
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &fixture{T: t, ctx: ctx, rdb: testkit.Redis(t), prefix: testkit.Prefix(t)}
	p.locks = lock.Keys{Lock: p.key("lock"), Queue: p.key("lock-queue")}
	p.shares = lock.ShareKeys{Shares: p.key("shares"), Queue: p.key("shares-queue"), Fence: p.key("shares-fence")}
	sub := p.rdb.Subscribe(ctx, p.key(channel))
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	return p
}

func (p *fixture) key(name string) string { return p.prefix + ":{twice}:" + name }

func (p *fixture) ok(_ any, err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// who is a caller with one entry; waits: it joins the queue.
func (p *fixture) who(owner, hold string, waits bool) lock.Caller {
	c := lock.Caller{Owner: owner, Hold: hold}
	if waits {
		c.Channel = p.key(channel)
	}
	return c
}

func (p *fixture) acquire(who lock.Caller, fair bool) (any, error) {
	got, err := lock.Acquire(p.ctx, p.rdb, p.locks, who, ttl, fair)
	return [2]int64{got.Fence, got.Queue}, err
}

func (p *fixture) release(who lock.Caller) (any, error) {
	return lock.Release(p.ctx, p.rdb, p.locks, who)
}

var (
	reader  = lock.Share{Kind: lock.Reader, Amount: 1}
	writer  = lock.Share{Kind: lock.Writer, Amount: 1}
	permits = lock.Share{Kind: lock.Permit, Amount: 2, Limit: 3}
)

func (p *fixture) take(who lock.Caller, share lock.Share) (any, error) {
	got, err := lock.AcquireShare(p.ctx, p.rdb, p.shares, who, share, ttl)
	return [2]int64{min(got.Fence, 1), got.Queue}, err
}

func (p *fixture) giveBack(who lock.Caller, share lock.Share) (any, error) {
	return lock.ReleaseShare(p.ctx, p.rdb, p.shares, who, share)
}

func (p *fixture) latch(party string, who lock.Caller, leave bool) (any, error) {
	return lock.Latch(p.ctx, p.rdb, p.locks, lock.LatchSpec{Count: 2, Life: ttl},
		lock.LatchCall{Party: party, Who: who, Leave: leave})
}

func (p *fixture) keys(names ...string) []string {
	for i, name := range names {
		names[i] = p.key(name)
	}
	return names
}

// state is what the keys have: values, and members without the times by which they are scored.
func (p *fixture) state() map[string]any {
	p.Helper()
	keys, err := p.rdb.Keys(p.ctx, p.prefix+":*").Result()
	p.ok(nil, err)
	state := map[string]any{}
	for _, key := range keys {
		switch kind := p.rdb.Type(p.ctx, key).Val(); kind {
		case "string":
			state[key] = p.rdb.Get(p.ctx, key).Val()
		case "zset":
			state[key] = p.rdb.ZRange(p.ctx, key, 0, -1).Val()
		case "hash":
			state[key] = p.rdb.HGetAll(p.ctx, key).Val()
		case "set":
			members := p.rdb.SMembers(p.ctx, key).Val()
			slices.Sort(members)
			state[key] = members
		default:
			p.Fatalf("%s is a %s", key, kind)
		}
		if left := p.rdb.PTTL(p.ctx, key).Val(); left <= 0 {
			p.Errorf("%s never expires", key)
		}
	}
	return state
}

// Every script may run twice, because a client retries after a reply that was lost: the second run changes nothing, and
// returns what the first one returned, except where the header describes another reply.
func TestEveryScriptMayRunTwice(t *testing.T) {
	cases := []struct {
		name   string
		before func(*fixture)
		call   func(*fixture) (any, error)
		want   any // of the first run; nil: anything
		again  any // of the second, where it returns something else
	}{
		{name: "acquire", call: func(p *fixture) (any, error) { return p.acquire(p.who("ann", "a", false), false) }},
		{name: "acquire fair", call: func(p *fixture) (any, error) { return p.acquire(p.who("ann", "a", true), true) }},
		{
			name:   "acquire what is held",
			before: func(p *fixture) { p.ok(p.acquire(p.who("ann", "a", false), false)) },
			call:   func(p *fixture) (any, error) { return p.acquire(p.who("bob", "b", true), false) },
			want:   [2]int64{0, 1},
		},
		{
			name:   "acquire again",
			before: func(p *fixture) { p.ok(p.acquire(p.who("ann", "a", false), false)) },
			call:   func(p *fixture) (any, error) { return p.acquire(p.who("ann", "b", false), false) },
		},
		{
			name: "claim",
			before: func(p *fixture) {
				p.ok(p.acquire(p.who("ann", "a", false), false))
				p.ok(p.acquire(p.who("bob", "b", true), false))
				p.ok(p.release(p.who("ann", "a", false)))
			},
			call: func(p *fixture) (any, error) { return p.acquire(p.who("bob", "b", true), false) },
		},
		{
			name:   "release",
			before: func(p *fixture) { p.ok(p.acquire(p.who("ann", "a", false), false)) },
			call:   func(p *fixture) (any, error) { return p.release(p.who("ann", "a", false)) },
			want:   true,
		},
		{
			name: "release one of two entries",
			before: func(p *fixture) {
				p.ok(p.acquire(p.who("ann", "a", false), false))
				p.ok(p.acquire(p.who("ann", "b", false), false))
			},
			call: func(p *fixture) (any, error) { return p.release(p.who("ann", "a", false)) },
			want: true,
		},
		{
			name: "release hands over, once",
			before: func(p *fixture) {
				p.ok(p.acquire(p.who("ann", "a", false), false))
				p.ok(p.acquire(p.who("bob", "b", true), false))
				p.ok(p.acquire(p.who("cid", "c", true), false))
			},
			call: func(p *fixture) (any, error) { return p.release(p.who("ann", "a", false)) },
			want: true, again: false, // the lock is bob's by then
		},
		{
			name: "leave the queue",
			before: func(p *fixture) {
				p.ok(p.acquire(p.who("ann", "a", false), false))
				p.ok(p.acquire(p.who("bob", "b", true), false))
			},
			call: func(p *fixture) (any, error) { return p.release(p.who("bob", "b", true)) },
			want: false,
		},
		{
			name: "renew",
			before: func(p *fixture) {
				p.ok(p.acquire(p.who("ann", "a", false), false))
				p.ok(p.take(p.who("ann", "s", false), reader))
			},
			call: func(p *fixture) (any, error) {
				return lock.Renew(p.ctx, p.rdb, []lock.Renewal{
					{Key: p.locks.Lock, Owner: "ann", Hold: "a", TTL: 2 * ttl},
					{Key: p.shares.Shares, Hold: "r s", TTL: 2 * ttl},
					{Key: p.locks.Lock, Owner: "bob", Hold: "a", TTL: 2 * ttl},
				})
			},
			want: []bool{true, true, false},
		},
		{
			name: "share: read", call: func(p *fixture) (any, error) { return p.take(p.who("r", "r", false), reader) },
			want: [2]int64{1, 0},
		},
		{
			name: "share: permits", call: func(p *fixture) (any, error) { return p.take(p.who("p", "p", false), permits) },
			want: [2]int64{1, 0},
		},
		{
			name:   "share: wait for permits",
			before: func(p *fixture) { p.ok(p.take(p.who("p", "p", false), permits)) },
			call:   func(p *fixture) (any, error) { return p.take(p.who("q", "q", true), permits) },
			want:   [2]int64{0, 1},
		},
		{
			name: "unshare hands over, once",
			before: func(p *fixture) {
				p.ok(p.take(p.who("r", "r", false), reader))
				p.ok(p.take(p.who("w", "w", true), writer))
				p.ok(p.take(p.who("x", "x", true), writer))
			},
			call: func(p *fixture) (any, error) { return p.giveBack(p.who("r", "r", false), reader) },
			want: true, again: false,
		},
		{
			name: "unshare permits",
			before: func(p *fixture) {
				p.ok(p.take(p.who("p", "p", false), permits))
				p.ok(p.take(p.who("q", "q", true), permits))
			},
			call: func(p *fixture) (any, error) { return p.giveBack(p.who("p", "p", false), permits) },
			want: true, again: false,
		},
		{
			name: "latch: arrive", call: func(p *fixture) (any, error) { return p.latch("ann", lock.Caller{}, false) },
			want: int64(1),
		},
		{
			name:   "latch: arrive last",
			before: func(p *fixture) { p.ok(p.latch("ann", p.who("x", "x", true), false)) },
			call:   func(p *fixture) (any, error) { return p.latch("bob", lock.Caller{}, false) },
			want:   int64(0),
		},
		{
			name: "latch: wait", call: func(p *fixture) (any, error) { return p.latch("", p.who("x", "x", true), false) },
			want: int64(2),
		},
		{
			name:   "latch: leave",
			before: func(p *fixture) { p.ok(p.latch("", p.who("x", "x", true), false)) },
			call:   func(p *fixture) (any, error) { return p.latch("", p.who("x", "x", true), true) },
			want:   int64(2),
		},
		{
			name:   "try_many",
			before: func(p *fixture) { p.ok(lock.TryMany(p.ctx, p.rdb, p.keys("b"), "other", ttl, false)) },
			call: func(p *fixture) (any, error) {
				return lock.TryMany(p.ctx, p.rdb, p.keys("a", "b", "c"), "token", ttl, false)
			},
			want: []bool{true, false, true},
		},
		{
			name: "try_many all",
			call: func(p *fixture) (any, error) {
				return lock.TryMany(p.ctx, p.rdb, p.keys("a", "b"), "token", ttl, true)
			},
			want: []bool{true, true},
		},
		{
			name: "unlock_many",
			before: func(p *fixture) {
				p.ok(lock.TryMany(p.ctx, p.rdb, p.keys("a", "b"), "token", ttl, false))
				p.ok(lock.TryMany(p.ctx, p.rdb, p.keys("c"), "other", ttl, false))
			},
			call: func(p *fixture) (any, error) {
				return lock.UnlockMany(p.ctx, p.rdb, p.keys("a", "b", "c"), "token")
			},
			want: int64(2), again: int64(0),
		},
		{
			name: "run_once",
			call: func(p *fixture) (any, error) {
				return lock.RunOnce(p.ctx, p.rdb, p.key("job"), "token", ttl, time.Second)
			},
			want: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newFixture(t)
			if c.before != nil {
				c.before(p)
			}
			untouched := p.state()
			first, err := c.call(p)
			p.ok(nil, err)
			once := p.state()
			if reflect.DeepEqual(untouched, once) && c.name != "claim" && c.name != "renew" {
				t.Error("the first run did nothing, and the test shows nothing")
			}
			if c.want != nil && !reflect.DeepEqual(first, c.want) {
				t.Errorf("the first run returned %v, want %v", first, c.want)
			}
			want := first
			if c.again != nil {
				want = c.again
			}
			for range 2 {
				got, err := c.call(p)
				p.ok(nil, err)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("run again it returned %v, want %v", got, want)
				}
				if state := p.state(); !reflect.DeepEqual(state, once) {
					t.Errorf("run again it changed\n%s to\n%s", fmt.Sprint(once), fmt.Sprint(state))
				}
			}
		})
	}
}
