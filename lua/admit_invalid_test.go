package lua_test

import (
	"math"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
)

func TestAdmitWithAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	for _, key := range []string{f.saleKeys.Sale, f.saleKeys.Buyers, f.saleKeys.Orders} {
		f.spoilt(key, func() error {
			_, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
				[]lua.AdmitRequest{request(2, "bob"), request(3, "cy")})
			return err
		})
	}
}

// A stream whose last id is the largest there is takes no entry. It is the only write that can be refused by what the
// key holds, so it is the first.
func TestAdmitWithAnExhaustedStreamChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.do("XADD", f.saleKeys.Orders, "18446744073709551615-18446744073709551615", "v", "1")
	f.unchanged("admit", func() {
		if _, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty, []lua.AdmitRequest{request(1, "ann")}); err == nil {
			t.Error("got no error")
		}
	})
}

func TestAdmitRefusesWhatNoScriptWrites(t *testing.T) {
	cases := []struct {
		name, prefix string
		spoil        func(*fixture)
	}{
		{"no stock", "BADSALE", func(f *fixture) { f.do("HDEL", f.saleKeys.Sale, "stock") }},
		{"no counter", "BADSALE", func(f *fixture) { f.do("HDEL", f.saleKeys.Sale, "accepted") }},
		{"no opening", "BADSALE", func(f *fixture) { f.do("HDEL", f.saleKeys.Sale, "opens_ms") }},
		{"no closing", "BADSALE", func(f *fixture) { f.do("HSET", f.saleKeys.Sale, "closes_ms", "soon") }},
		{"no limit", "BADSALE", func(f *fixture) { f.do("HSET", f.saleKeys.Sale, "max_quantity", "") }},
		{"a state of its own", "BADSALE", func(f *fixture) { f.do("HSET", f.saleKeys.Sale, "state", "Active") }},
		{
			"a slot of six fields", "BADSLOT",
			func(f *fixture) { f.do("HSET", f.saleKeys.Buyers, "cy", orderID(9)+" 1 2 3 4 -") },
		},
		{
			"a slot of eight fields", "BADSLOT",
			func(f *fixture) { f.do("HSET", f.saleKeys.Buyers, "cy", orderID(9)+" 1 2 3 4 - - -") },
		},
		{"an empty slot", "BADSLOT", func(f *fixture) { f.do("HSET", f.saleKeys.Buyers, "cy", "") }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.load(f.openSale(5))
			c.spoil(f)
			f.unchanged("admit", func() {
				_, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
					[]lua.AdmitRequest{request(1, "ann"), request(2, "cy")})
				if !redis.HasErrorPrefix(err, c.prefix) {
					t.Errorf("got error %v, want %s", err, c.prefix)
				}
			})
		})
	}
}

// The script does not trust its caller either.
func TestAdmitScriptRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	good := []any{saleID, plenty, orderID(1), "7", "ann", "1", "-", "-", ""}
	with := func(i int, value any) []any {
		args := append([]any{}, good...)
		args[i] = value
		return append(args, good[2:]...)
	}
	for _, args := range [][]any{
		{},
		{saleID},
		good[:2], good[:8], append(with(2, orderID(1)), "one more"), with(5, "0"), with(5, "-1"), with(5,
			"1.5"), with(5, "x"), with(5, ""),
		with(1, "0"), with(1, "-1"), with(1, ""), with(1, "no limit"),
	} {
		f.unchanged("admit", func() {
			f.badCall("admit.lua", []string{f.saleKeys.Sale, f.saleKeys.Buyers, f.saleKeys.Orders}, args...)
		})
	}
}

func TestAdmitRefusesBadRequestsUnsent(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(500))
	changes := map[string]func(*lua.AdmitRequest){
		"no order id":             func(r *lua.AdmitRequest) { r.OrderID = "" },
		"order id with space":     func(r *lua.AdmitRequest) { r.OrderID = "a b" },
		"dash for an order id":    func(r *lua.AdmitRequest) { r.OrderID = "-" },
		"number 0":                func(r *lua.AdmitRequest) { r.Number = 0 },
		"negative number":         func(r *lua.AdmitRequest) { r.Number = math.MinInt64 },
		"no user":                 func(r *lua.AdmitRequest) { r.UserID = "" },
		"quantity 0":              func(r *lua.AdmitRequest) { r.Quantity = 0 },
		"negative quantity":       func(r *lua.AdmitRequest) { r.Quantity = -1 },
		"dash for a key":          func(r *lua.AdmitRequest) { r.KeyHash = "-" },
		"key with newline":        func(r *lua.AdmitRequest) { r.KeyHash = "a\nb" },
		"payload hash with space": func(r *lua.AdmitRequest) { r.PayloadHash = " " },
	}
	f.unchanged("admit", func() {
		for name, change := range changes {
			bad := request(2, "bob")
			change(&bad)
			if _, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
				[]lua.AdmitRequest{request(1, "ann"), bad}); err == nil || !strings.Contains(err.Error(), "request 1") {
				t.Errorf("%s: got error %v, want one that names request 1", name, err)
			}
		}
		if _, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, 0, []lua.AdmitRequest{request(1, "ann")}); err == nil {
			t.Error("no events allowed: got no error")
		}
		for _, size := range []int{0, lua.MaxAdmitBatch + 1} {
			if _, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty, make([]lua.AdmitRequest, size)); err == nil {
				t.Errorf("batch of %d: got no error", size)
			}
		}
	})
}

// At maxmemory nothing is admitted, half or whole; but what was admitted before can be settled and released, which is
// the way out.
func TestAFullServerAdmitsNothingAndStillSettlesAndReleases(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	f := fixtureOn(t, testkit.Client(t, server.URL()), "full")
	sale := f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0")
	entry := f.read("w1", 1)[0]
	f.do("SET", f.lockKey(1), "token")
	f.do("CONFIG", "SET", "maxmemory", "1")

	f.unchanged("admit", func() {
		_, err := lua.Admit(f.ctx, f.rdb, f.saleKeys, saleID, plenty, []lua.AdmitRequest{request(2, "bob"), request(3, "cy")})
		if !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("admit: got error %v, want OOM", err)
		}
	})
	acked, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "token",
		[]lua.SettleItem{{EntryID: entry, LockKey: f.lockKey(1)}})
	if err != nil || acked != 1 {
		t.Errorf("settle: got %d, %v, want 1", acked, err)
	}
	given, err := release(f, "ann", orderID(1))
	if err != nil || !given[0] {
		t.Errorf("release: got %v, %v, want true", given, err)
	}
	got := f.state()
	if got.Ended["ann"] == "" {
		t.Error("the key of the order that was released is forgotten")
	}
	got.Ended = nil
	same(t, "state", got, state{
		Sale: saleHash(sale, 1, 1), Buyers: map[string]string{}, Consumers: []string{"w1"}, Others: map[string]string{},
	})
}
