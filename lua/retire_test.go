package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// mustRetire reports whether the sale is gone.
func (f *fixture) mustRetire(version int64) bool {
	f.Helper()
	got, err := lua.Retire(f.ctx, f.rdb, f.saleKeys, version, "lamps")
	if err != nil {
		f.Fatal(err)
	}
	return got
}

// A sale that is over goes as a whole, and nothing else does. One that is open, or newer than the decision, stays.
func TestRetireRemovesAllOfASaleThatIsOver(t *testing.T) {
	f := newFixture(t)
	sale := f.openSale(1)
	sale.Waitlist, sale.Group, sale.GroupLimit = 5, "lamps", 9
	f.load(sale)
	f.mustAdmit(request(1, "ann"))
	ended := []lua.ReleaseItem{{UserID: "ann", OrderID: orderID(1)}}
	if _, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty, ended); err != nil {
		t.Fatal(err)
	}
	f.mustAdmit(request(2, "bob"))
	if reply, err := lua.Join(f.ctx, f.rdb, f.saleKeys, request(3, "cat")); err != nil || reply.Code != lua.JoinJoined {
		t.Fatalf("join: %+v, %v", reply, err)
	}
	f.unchanged("while it is open", func() {
		if gone, err := lua.Retire(f.ctx, f.rdb, f.saleKeys, 1, "lamps"); gone || err == nil {
			t.Errorf("got %t, %v, want an error", gone, err)
		}
	})
	f.do("HSET", f.saleKeys.Sale, "closes_ms", f.nowMS()-1, "version", 2)
	f.unchanged("of an older version", func() { same(t, "result", f.mustRetire(1), false) })
	if s := f.state(); len(s.Buyers) != 1 || len(s.Waiting) != 1 || len(s.Ended) != 1 {
		t.Fatalf("got %+v, want something of everything", s)
	}
	members := strings.Replace(f.saleKeys.Sale, "sale:"+saleID, "group:lamps", 1)
	f.do("SADD", members, "another")
	events := len(f.state().Events)
	same(t, "result", f.mustRetire(2), true)
	for _, key := range []string{
		f.saleKeys.Sale, f.saleKeys.Buyers, f.saleKeys.Waitlist, f.saleKeys.Waiting, f.saleKeys.Ended,
	} {
		same(t, key, f.do("EXISTS", key), any(int64(0)))
	}
	same(t, "the group", fmt.Sprint(f.do("SMEMBERS", members)), "[another]")
	same(t, "events", len(f.state().Events), events)
	f.unchanged("again", func() { same(t, "result", f.mustRetire(2), true) })
	f.do("HSET", f.saleKeys.Buyers, "zoe", "left over")
	same(t, "of what is left", f.mustRetire(2), true)
	same(t, "what is left", f.do("EXISTS", f.saleKeys.Buyers), any(int64(0)))
}

func TestRetireOfASaleThatCanNotBeRead(t *testing.T) {
	f := newFixture(t)
	f.do("HSET", f.saleKeys.Sale, "state", "active", "version", "?", "closes_ms", "1")
	f.unchanged("a version that is none", func() {
		if _, err := lua.Retire(f.ctx, f.rdb, f.saleKeys, 1, "lamps"); !redis.HasErrorPrefix(err, "BADSALE") {
			t.Errorf("got %v, want BADSALE", err)
		}
	})
}
