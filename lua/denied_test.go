package lua_test

import (
	"net/url"
	"reflect"
	"testing"

	"sluice/internal/testkit"
	"sluice/lua"
)

// deniedCalls are operations that write with more than one command, each with what it needs beforehand.
var deniedCalls = map[string]struct {
	prepare func(f *fixture)
	call    func(f *fixture) error
}{
	"admit": {
		func(f *fixture) { f.load(f.openSale(5)) },
		func(f *fixture) error {
			_, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty, []lua.AdmitRequest{request(1, "ann")})
			return err
		},
	},
	"resubmit": {
		func(f *fixture) { f.soldOut(1); f.joins(11, "ann", 1, 1); f.giveBackWhilePaused() },
		func(f *fixture) error {
			_, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(12, "ann")})
			return err
		},
	},
	"settle": {
		func(f *fixture) { f.load(f.openSale(5)); f.deliver() },
		func(f *fixture) error {
			item := lua.SettleItem{EntryID: f.firstEntry(), LockKey: f.lockKey(1)}
			_, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "token", []lua.SettleItem{item})
			return err
		},
	},
	"settle what others settled": {
		func(f *fixture) { f.load(f.openSale(5)); f.deliver() },
		func(f *fixture) error {
			items := []lua.SettleItem{{EntryID: "1-1"}, {EntryID: f.firstEntry(), LockKey: f.lockKey(1)}}
			_, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "token", items)
			return err
		},
	},
	"claim": {
		func(f *fixture) { f.load(f.openSale(5)); f.deliver() },
		func(f *fixture) error {
			by := lua.Consumer{Stream: f.saleKeys.Orders, Group: group, Name: "w2"}
			_, _, err := lua.Claim(f.ctx, f.rdb, by, 0, []lua.PendingEntry{{ID: f.firstEntry()}})
			return err
		},
	},
	"release and hand over": {
		func(f *fixture) { f.soldOut(1); f.joins(11, "ann", 1, 1) },
		func(f *fixture) error { _, err := release(f, "first-1", orderID(1)); return err },
	},
	"join": {
		func(f *fixture) { f.soldOut(1) },
		func(f *fixture) error { _, err := lua.Join(f.ctx, f.rdb, f.saleKeys, request(11, "ann")); return err },
	},
	"leave": {
		func(f *fixture) { f.soldOut(1); f.joins(11, "ann", 1, 1) },
		func(f *fixture) error {
			_, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
				lua.ReleaseItem{UserID: "ann", OrderID: orderID(11)})
			return err
		},
	},
	"take and forget": {
		func(f *fixture) { f.load(f.openSale(5)); f.mustTake(lua.Move{Number: 1, Units: 1}) },
		func(f *fixture) error {
			_, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 2, Units: 1, Done: 1})
			return err
		},
	},
	"give and hand over": {
		func(f *fixture) { f.soldOut(1); f.joins(11, "ann", 1, 1) },
		func(f *fixture) error {
			_, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 1, Units: 1})
			return err
		},
	},
	"restock and hand over": {
		func(f *fixture) { f.soldOut(1); f.joins(11, "ann", 1, 1) },
		func(f *fixture) error {
			sale := f.openSale(2)
			sale.Version = 2
			_, err := adjust(f, sale)
			return err
		},
	},
}

// giveBackWhilePaused frees the unit of the first buyer without handing it over.
func (f *fixture) giveBackWhilePaused() {
	f.Helper()
	f.do("HSET", f.saleKeys.Sale, "state", "paused")
	f.giveBack("first-1", 1)
}

// deliver makes an event that a worker has, with its lock.
func (f *fixture) deliver() {
	f.Helper()
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0", "MKSTREAM")
	f.mustAdmit(request(1, "ann"))
	f.read("w1", 1)
	f.do("SET", f.lockKey(1), "token")
}

func (f *fixture) firstEntry() string {
	f.Helper()
	entries, err := f.rdb.XRange(f.ctx, f.saleKeys.Orders, "-", "+").Result()
	if err != nil || len(entries) == 0 {
		f.Fatalf("got %v, %v", entries, err)
	}
	return entries[0].ID
}

// TestADeniedCommandLeavesNoHalf: Redis looks at a user's rights command by command, and undoes nothing. So a script
// that may not use one of its commands must change nothing at all, and do its work once the right is back.
func TestADeniedCommandLeavesNoHalf(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("shop", "secret")
	rdb := testkit.Client(t, server.URL())
	rights := func(f *fixture, rules ...any) {
		f.Helper()
		f.do(append([]any{"ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all"}, rules...)...)
	}
	for name, test := range deniedCalls {
		refused := 0
		for _, command := range []string{
			"XADD", "HSET", "HDEL", "ZADD", "ZREM", "ZCARD", "ZRANK", "XACK", "XDEL", "XCLAIM", "XINFO", "MGET", "DEL",
			"HMGET",
		} {
			f := fixtureOn(t, rdb, testkit.Prefix(t)+name+command)
			rights(f)
			test.prepare(f)
			before := f.state()
			rights(f, "-"+command)
			denied := *f
			denied.rdb = testkit.Client(t, u.String())
			if err := test.call(&denied); err == nil {
				continue // it can do without
			}
			refused++
			if got := f.state(); !reflect.DeepEqual(got, before) {
				t.Errorf("%s without %s: got %+v, want nothing changed: %+v", name, command, got, before)
			}
			rights(f)
			if err := test.call(&denied); err != nil {
				t.Errorf("%s with %s again: %v", name, command, err)
			}
		}
		if refused == 0 {
			t.Errorf("%s needs none of the commands: this is no test of it", name)
		}
	}
}
