package lua_test

import (
	"math"
	"testing"

	"sluice/lua"
)

func TestLoadWritesAnAbsentSaleWhole(t *testing.T) {
	f := newFixture(t)
	sale := lua.SaleFields{
		Stock: 1<<31 - 1, Total: 1 << 31, OpensMS: 1<<48 - 1, ClosesMS: 1 << 48, MaxQuantity: 1000, State: "paused",
		Version: 1 << 53,
	}
	same(t, "keys before", len(f.keys()), 0)
	f.load(sale)
	same(t, "state after", f.state(), state{
		Sale: saleHash(sale, 0, 0), Buyers: map[string]string{},
		Others: map[string]string{},
	})
}

func TestLoadLeavesAPresentSaleAlone(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	newer := sale
	newer.Version, newer.Total, newer.Stock = 9, 50, 50
	for _, again := range []lua.SaleFields{sale, newer} {
		f.unchanged("load", func() {
			if got, err := lua.Load(f.ctx, f.rdb, f.saleKeys.Sale, f.saleKeys.Trusted, again); err != nil ||
				got != lua.LoadPresent {
				t.Errorf("got %q, %v, want present", got, err)
			}
		})
	}
}

func TestLoadOfAnEmptyShare(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(0))
	same(t, "admit", codes(f.mustAdmit(request(1, "ann"))), []lua.AdmitCode{lua.AdmitSoldOut})
}

func TestLoadOntoAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.spoilt(f.saleKeys.Sale, func() error {
		_, err := lua.Load(f.ctx, f.rdb, f.saleKeys.Sale, f.saleKeys.Trusted, f.openSale(5))
		return err
	})
}

// badSales are definitions that neither Load nor Adjust sends.
func badSales(good lua.SaleFields) map[string]lua.SaleFields {
	bad := map[string]lua.SaleFields{}
	for name, change := range map[string]func(*lua.SaleFields){
		"negative total":   func(s *lua.SaleFields) { s.Total, s.Stock = -1, -1 },
		"inexact total":    func(s *lua.SaleFields) { s.Total = math.MaxInt64 },
		"window reversed":  func(s *lua.SaleFields) { s.OpensMS, s.ClosesMS = s.ClosesMS, s.OpensMS },
		"window empty":     func(s *lua.SaleFields) { s.ClosesMS = s.OpensMS },
		"before 1970":      func(s *lua.SaleFields) { s.OpensMS = -1 },
		"inexact end":      func(s *lua.SaleFields) { s.ClosesMS = math.MaxInt64 },
		"limit 0":          func(s *lua.SaleFields) { s.MaxQuantity = 0 },
		"no state":         func(s *lua.SaleFields) { s.State = "" },
		"unknown state":    func(s *lua.SaleFields) { s.State = "open" },
		"waitlist below 0": func(s *lua.SaleFields) { s.Waitlist = -1 },
		"version 0":        func(s *lua.SaleFields) { s.Version = 0 },
		"inexact version":  func(s *lua.SaleFields) { s.Version = 1<<53 + 1 },
		"negative version": func(s *lua.SaleFields) { s.Version = -1 },
	} {
		s := good
		change(&s)
		bad[name] = s
	}
	return bad
}

func TestLoadRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	bad := badSales(f.openSale(5))
	for name, stock := range map[string]int64{"negative stock": -1, "stock above the total": 6} {
		s := f.openSale(5)
		s.Stock = stock
		bad[name] = s
	}
	for name, s := range bad {
		if got, err := lua.Load(f.ctx, f.rdb, f.saleKeys.Sale, f.saleKeys.Trusted, s); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	for _, args := range [][]any{{}, {1, 2, 3, 4, 5, "active"}, {1, 2, 3, 4, 5, "active", 7, 8, 9}} {
		f.badCall("load.lua", []string{f.saleKeys.Sale}, args...)
	}
	same(t, "keys", len(f.keys()), 0)
}
