package lua_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

func (f *fixture) mustRelease(items ...lua.ReleaseItem) []bool {
	f.Helper()
	released, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, f.maxEvents, items)
	if err != nil {
		f.Fatal(err)
	}
	return released
}

func TestReleaseGivesBackOnce(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(10))
	big := request(2, "bob")
	big.Quantity = 3
	f.mustAdmit(request(1, "ann"), big, request(3, "cy"))
	before := f.state()
	items := []lua.ReleaseItem{
		{UserID: "ann", OrderID: orderID(1)},
		{UserID: "cy", OrderID: orderID(2)}, // another's order
		{UserID: "bob", OrderID: orderID(2)},
		{UserID: "bob", OrderID: orderID(2)}, // twice in one batch
		{UserID: "nobody", OrderID: orderID(1)},
		{UserID: "cy", OrderID: orderID(3)[:35]}, // begins like it
	}
	same(t, "released", f.mustRelease(items...), []bool{true, false, true, false, false, false})

	want := before
	sale.Stock = 9
	want.Sale, want.Buyers = saleHash(sale, 3, 2), map[string]string{"cy": before.Buyers["cy"]}
	want.Ended = map[string]string{"ann": before.Buyers["ann"], "bob": before.Buyers["bob"]}
	same(t, "state after", f.state(), want)
	f.unchanged("the second run", func() {
		same(t, "released", f.mustRelease(items...), []bool{false, false, false, false, false, false})
	})
}

// A release of units that are withdrawn frees the slot, once, and leaves the stock as it is.
func TestReleaseWithdraws(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	big := request(1, "ann")
	big.Quantity = 3
	f.mustAdmit(big, request(2, "bob"))
	before := f.state()
	withdrawn := lua.ReleaseItem{UserID: "ann", OrderID: orderID(1), Withdrawn: true}
	same(t, "released", f.mustRelease(withdrawn), []bool{true})
	want := before
	sale.Stock = 1
	want.Sale, want.Buyers = saleHash(sale, 2, 1), map[string]string{"bob": before.Buyers["bob"]}
	want.Ended = map[string]string{"ann": before.Buyers["ann"]}
	same(t, "state after", f.state(), want)
	f.unchanged("the second run", func() { same(t, "released", f.mustRelease(withdrawn), []bool{false}) })
	again := request(3, "ann")
	again.Quantity = 2
	same(t, "admit", codes(f.mustAdmit(again)), []lua.AdmitCode{lua.AdmitSoldOut}) // one unit is left
	same(t, "admit", codes(f.mustAdmit(request(4, "ann"))), []lua.AdmitCode{lua.AdmitAccepted})
}

// A late second release of a buyer's first order must not free the slot of the second one.
func TestReleaseLeavesTheBuyersNextOrder(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(1))
	first := lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)}
	f.mustAdmit(request(1, "ann"))
	same(t, "released", f.mustRelease(first), []bool{true})
	same(t, "admit", codes(f.mustAdmit(request(2, "ann"))), []lua.AdmitCode{lua.AdmitAccepted})
	f.unchanged("the late release", func() { same(t, "released", f.mustRelease(first), []bool{false}) })
}

func TestReleaseAFullBatch(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(lua.MaxReleaseBatch))
	var items []lua.ReleaseItem
	var reqs []lua.AdmitRequest
	for n := range lua.MaxReleaseBatch {
		reqs = append(reqs, request(n+1, fmt.Sprint("user", n)))
		items = append(items, lua.ReleaseItem{UserID: fmt.Sprint("user", n), OrderID: orderID(n + 1)})
		if len(reqs) == lua.MaxAdmitBatch || n == lua.MaxReleaseBatch-1 {
			f.mustAdmit(reqs...)
			reqs = nil
		}
	}
	f.mustRelease(items...)
	s := f.state()
	same(t, "sale", s.Sale, saleHash(sale, lua.MaxReleaseBatch, lua.MaxReleaseBatch))
	same(t, "buyers", s.Buyers, map[string]string{})
}

func TestReleaseWithoutTheSaleChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	f.do("DEL", f.saleKeys.Sale)
	f.unchanged("release", func() {
		_, err := release(f, "ann", orderID(1))
		if !errors.Is(err, lua.ErrNotLoaded) {
			t.Errorf("got error %v, want ErrNotLoaded", err)
		}
	})
}

func TestReleaseWithAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	for _, key := range []string{f.saleKeys.Sale, f.saleKeys.Buyers} {
		f.spoilt(key, func() error {
			_, err := release(f, "ann", orderID(1))
			return err
		})
	}
}

func TestReleaseRefusesWhatNoScriptWrites(t *testing.T) {
	cases := []struct {
		name, prefix string
		spoil        func(*fixture)
	}{
		{"no stock", "BADSALE", func(f *fixture) { f.do("HDEL", f.saleKeys.Sale, "stock") }},
		{"no counter", "BADSALE", func(f *fixture) { f.do("HSET", f.saleKeys.Sale, "released", "x") }},
		{"a slot of one field", "BADSLOT", func(f *fixture) { f.do("HSET", f.saleKeys.Buyers, "cy", orderID(2)) }},
		{
			"a slot without a quantity", "BADSLOT",
			func(f *fixture) { f.do("HSET", f.saleKeys.Buyers, "cy", orderID(2)+" x 2 3 4 - -") },
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.load(f.openSale(5))
			f.mustAdmit(request(1, "ann"))
			c.spoil(f)
			f.unchanged("release", func() {
				_, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty, []lua.ReleaseItem{
					{UserID: "ann", OrderID: orderID(1)}, {UserID: "cy", OrderID: orderID(2)},
				})
				if !redis.HasErrorPrefix(err, c.prefix) {
					t.Errorf("got error %v, want %s", err, c.prefix)
				}
			})
		})
	}
}

func TestReleaseRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	f.unchanged("release", func() {
		for _, args := range [][]any{
			{},
			{saleID},
			{saleID, 0},
			{saleID, "x"},
			{saleID, 9, "ann"},
			{saleID, 9, "ann", orderID(1)},
			{saleID, 9, "ann", orderID(1), 0, "bob"},
		} {
			f.badCall("release.lua", []string{f.saleKeys.Sale, f.saleKeys.Buyers, "c", "d", "e", "f"}, args...)
		}
		keys := []string{
			f.saleKeys.Sale, f.saleKeys.Buyers, f.saleKeys.Trusted, f.saleKeys.Orders, f.saleKeys.Waitlist, f.saleKeys.Waiting,
			f.saleKeys.Ended,
		}
		f.badCall("release.lua", keys, saleID, 9, "ann", orderID(1), "yes")
		good := lua.ReleaseItem{UserID: "ann", OrderID: orderID(1)}
		for _, items := range [][]lua.ReleaseItem{
			nil, make([]lua.ReleaseItem, lua.MaxReleaseBatch+1), {good, {UserID: "ann"}}, {good, {OrderID: orderID(1)}},
		} {
			if _, _, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty, items); err == nil {
				t.Errorf("%d items: got no error", len(items))
			}
		}
	})
}
