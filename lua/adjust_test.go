package lua_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

func (f *fixture) mustAdjust(s lua.SaleFields) lua.AdjustCode {
	f.Helper()
	got, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, f.maxEvents, s)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

func TestAdjustFollowsANewerDefinition(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"), request(2, "bob"))
	before := f.state()

	newer := lua.SaleFields{
		Stock: 999, Total: 9, OpensMS: 1<<48 - 1, ClosesMS: 1 << 48, MaxQuantity: 1, State: "paused", Version: 2,
	}
	same(t, "result", f.mustAdjust(newer), lua.AdjustAdjusted)
	want := before
	newer.Stock = 7 // 3 left of 5, and 4 more
	want.Sale = saleHash(newer, 2, 0)
	same(t, "state after", f.state(), want)
	f.unchanged("the second run", func() { same(t, "result", f.mustAdjust(newer), lua.AdjustCurrent) })
	sale.Version = 1
	f.unchanged("a late older definition", func() { same(t, "result", f.mustAdjust(sale), lua.AdjustCurrent) })
}

// Definitions hold totals, not differences: whichever of two arrives, and in whatever order, the newer one stands.
func TestAdjustSkipsWhatArrivesLate(t *testing.T) {
	f := newFixture(t)
	second := f.load(f.openSale(5))
	second.Version, second.Total = 2, 8
	third := second
	third.Version, third.Total = 3, 12
	same(t, "third", f.mustAdjust(third), lua.AdjustAdjusted)
	same(t, "second, late", f.mustAdjust(second), lua.AdjustCurrent)
	third.Stock = 12
	same(t, "sale", f.hash(f.saleKeys.Sale), saleHash(third, 0, 0))
}

func TestAdjustDownToWhatIsTakenAndNoFurther(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"), request(2, "bob"))
	sale.Version, sale.Total = 2, 1
	f.unchanged("a total below what is taken", func() { same(t, "result", f.mustAdjust(sale), lua.AdjustBelowTaken) })
	sale.Total = 2
	same(t, "result", f.mustAdjust(sale), lua.AdjustAdjusted)
	sale.Stock = 0
	same(t, "sale", f.hash(f.saleKeys.Sale), saleHash(sale, 2, 0))
}

// How many units are free is what a server says whose state is verified. What takes none out needs no proof.
func TestAdjustTakesNothingOutUnverified(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	f.do("set", f.saleKeys.Trusted, "another")
	sale.Version, sale.Total = 2, 4
	f.unchanged("fewer units", func() {
		if _, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, sale); !errors.Is(err, lua.ErrUntrusted) {
			t.Errorf("got %v, want it untrusted", err)
		}
	})
	sale.Total = 5
	same(t, "as many", f.mustAdjust(sale), lua.AdjustAdjusted)
	sale.Total = 4
	f.unchanged("again", func() { same(t, "result", f.mustAdjust(sale), lua.AdjustCurrent) })
	f.trust()
	sale.Version = 3
	same(t, "fewer, verified", f.mustAdjust(sale), lua.AdjustAdjusted)
}

func TestAdjustKeepsLargeIntegersExact(t *testing.T) {
	f := newFixture(t)
	sale := f.openSale(1)
	sale.Version = 1<<53 - 2
	f.load(sale)
	sale.Version, sale.Total, sale.ClosesMS = 1<<53-1, 1<<31, 1<<48
	same(t, "result", f.mustAdjust(sale), lua.AdjustAdjusted)
	sale.Stock = 1 << 31
	same(t, "sale", f.hash(f.saleKeys.Sale), saleHash(sale, 0, 0))
}

func TestAdjustOfAnAbsentSale(t *testing.T) {
	f := newFixture(t)
	same(t, "result", f.mustAdjust(f.openSale(5)), lua.AdjustAbsent)
	same(t, "keys", len(f.keys()), 0)
}

func TestAdjustWithAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.spoilt(f.saleKeys.Sale, func() error {
		_, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, f.openSale(5))
		return err
	})
}

func TestAdjustRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	good := f.load(f.openSale(5))
	good.Version = 2
	f.unchanged("adjust", func() {
		for name, s := range badSales(good) {
			if got, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, s); err == nil {
				t.Errorf("%s: got %q", name, got)
			}
		}
		for _, args := range [][]any{
			{},
			{6, 1, 2, 3, "active", 2, 0, saleID},
			{6, 1, 2, 3, "active", 2, 0, saleID, 9, 7},
			{"x", 1, 2, 3, "active", 2, 0, saleID, 9},
			{6, 1, 2, 3, "active", "x", 0, saleID, 9},
			{6, 1, 2, 3, "active", 2, 0, saleID, "x"},
			{6, "x", 2, 3, "active", 2, 0, saleID, 9},
		} {
			f.badCall("adjust.lua", []string{f.saleKeys.Sale, "b", "c", "d", "e", "f"}, args...)
		}
	})
	for _, field := range []string{"stock", "total", "version", "accepted"} {
		f.do("HDEL", f.saleKeys.Sale, field)
		f.unchanged("adjust without "+field, func() {
			if _, _, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, good); !redis.HasErrorPrefix(err, "BADSALE") {
				t.Errorf("without %s: got error %v, want BADSALE", field, err)
			}
		})
		f.do("HSET", f.saleKeys.Sale, field, 5)
	}
}
