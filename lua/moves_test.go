package lua_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

func (f *fixture) mustTake(m lua.Move) int64 {
	f.Helper()
	units, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, m)
	if err != nil {
		f.Fatal(err)
	}
	return units
}

func (f *fixture) mustGive(m lua.Move) lua.HandedOver {
	f.Helper()
	_, handed, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, m)
	if err != nil {
		f.Fatal(err)
	}
	return handed
}

// moved is the sale's hash as load has made it, with other fields besides.
func moved(s lua.SaleFields, accepted int64, fields map[string]int64) map[string]string {
	all := saleHash(s, accepted, 0)
	for name, n := range fields {
		all[name] = fmt.Sprint(n)
	}
	return all
}

func TestTakeTakesOnceAndAtMostWhatIsFree(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(5))
	same(t, "units", f.mustTake(lua.Move{Number: 1, Units: 2}), 2)
	sale.Stock = 3
	same(t, "sale", f.hash(f.saleKeys.Sale), moved(sale, 0, map[string]int64{"moved_out": 2, "out:1": 2}))
	f.unchanged("the same move again", func() {
		same(t, "units", f.mustTake(lua.Move{Number: 1, Units: 2}), 2)
		same(t, "units, other units wanted", f.mustTake(lua.Move{Number: 1, Units: 0}), 2)
	})
	same(t, "more than there are", f.mustTake(lua.Move{Number: 2, Units: 9}), 3)
	same(t, "of nothing", f.mustTake(lua.Move{Number: 3, Units: 9}), 0)
	sale.Stock = 0
	same(t, "sale", f.hash(f.saleKeys.Sale),
		moved(sale, 0, map[string]int64{"moved_out": 5, "out:1": 2, "out:2": 3, "out:3": 0}))
}

// A process that finishes a move which another has begun wants 0 units. The other one, when it goes on, takes nothing.
func TestAVoidMoveNeverTakes(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	same(t, "who finishes it", f.mustTake(lua.Move{Number: 1}), 0)
	f.unchanged("who has begun it", func() { same(t, "units", f.mustTake(lua.Move{Number: 1, Units: 5}), 0) })
}

func TestGiveGivesOnce(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(1))
	f.mustGive(lua.Move{Number: 7, Units: 4})
	sale.Stock = 5
	same(t, "sale", f.hash(f.saleKeys.Sale), moved(sale, 0, map[string]int64{"moved_in": 4, "in:7": 4}))
	f.unchanged("again", func() { f.mustGive(lua.Move{Number: 7, Units: 4}) })
	f.unchanged("again, other units", func() {
		_, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 7, Units: 5})
		if !redis.HasErrorPrefix(err, "BADMOVE") {
			t.Errorf("got %v, want BADMOVE", err)
		}
	})
}

// What is forgotten is refused: a process that was stopped for long before its call changes nothing.
func TestForgottenMovesAreRefused(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(9))
	f.mustTake(lua.Move{Number: 1, Units: 1})
	f.mustGive(lua.Move{Number: 2, Units: 3})
	f.mustTake(lua.Move{Number: 3, Units: 1})
	f.mustTake(lua.Move{Number: 4, Units: 1, Done: 2})
	sale.Stock = 9
	want := moved(sale, 0, map[string]int64{"moved_out": 3, "moved_in": 3, "moves_done": 2, "out:3": 1, "out:4": 1})
	same(t, "sale", f.hash(f.saleKeys.Sale), want)
	f.unchanged("late calls", func() {
		for number := int64(1); number <= 2; number++ {
			if _, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: number, Units: 1}); !errors.Is(err,
				lua.ErrMoveFinished) {
				t.Errorf("take %d: got %v, want it finished", number, err)
			}
			_, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: number, Units: 1})
			if !errors.Is(err, lua.ErrMoveFinished) {
				t.Errorf("give %d: got %v, want it finished", number, err)
			}
		}
	})
	f.mustGive(lua.Move{Number: 5, Units: 2, Done: 4})
	sale.Stock = 11
	want = moved(sale, 0, map[string]int64{"moved_out": 3, "moved_in": 5, "moves_done": 4, "in:5": 2})
	same(t, "sale", f.hash(f.saleKeys.Sale), want)
	f.mustTake(lua.Move{Number: 6, Units: 1, Done: 1}) // who knows less makes nothing of it undone
	same(t, "moves_done", f.hash(f.saleKeys.Sale)["moves_done"], "4")
}

// No unit goes past a buyer who waits: none leaves, and those that arrive are handed over.
func TestMovesAndBuyersWhoWait(t *testing.T) {
	f := newFixture(t)
	f.soldOut(2)
	f.joins(11, "ann", 2, 1)
	f.joins(12, "bob", 1, 2)
	f.giveBack("first-1", 1) // one unit is free, and ann, who is first, wants two
	same(t, "taken while they wait", f.mustTake(lua.Move{Number: 1, Units: 1}), 0)
	same(t, "handed over", f.mustGive(lua.Move{Number: 2, Units: 2}), lua.HandedOver{
		Orders: []string{orderID(11), orderID(12)},
	})
	sale := f.hash(f.saleKeys.Sale)
	same(t, "stock", sale["stock"], "0")
	same(t, "waiting", sale["waiting"], "0")
	f.unchanged("again", func() { f.mustGive(lua.Move{Number: 2, Units: 2}) })
}

func TestMovesOnAServerThatMayHaveForgotten(t *testing.T) {
	f := newFixture(t)
	both := func(want error) {
		t.Helper()
		f.unchanged(want.Error(), func() {
			if _, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 1, Units: 1}); !errors.Is(err, want) {
				t.Errorf("take: got %v, want %v", err, want)
			}
			_, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 1, Units: 1})
			if !errors.Is(err, want) {
				t.Errorf("give: got %v, want %v", err, want)
			}
		})
	}
	both(lua.ErrNotLoaded)
	f.load(f.openSale(5))
	f.do("SET", f.saleKeys.Generation, 7)
	f.saleKeys.Fence = 8
	both(lua.ErrUntrusted)
	f.saleKeys.Fence = 7
	units, generation, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 1, Units: 1})
	if err != nil || units != 1 || generation != 7 {
		t.Errorf("take: got %d units, generation %d, %v", units, generation, err)
	}
	generation, _, err = lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 2, Units: 1})
	if err != nil || generation != 7 {
		t.Errorf("give: got generation %d, %v", generation, err)
	}
	f.do("SET", f.saleKeys.Trusted, "another")
	both(lua.ErrUntrusted)
}

// More is sold than there is after some losses: then nothing is free, and a move that arrives fills the gap.
func TestMovesOfASaleThatIsOversold(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.do("HSET", f.saleKeys.Sale, "stock", -2)
	same(t, "taken", f.mustTake(lua.Move{Number: 1, Units: 3}), 0)
	f.mustGive(lua.Move{Number: 2, Units: 3})
	same(t, "stock", f.hash(f.saleKeys.Sale)["stock"], "1")
}

func TestMovesRefuseBadArgumentsAndSales(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	f.unchanged("bad arguments", func() {
		for _, m := range []lua.Move{
			{Units: 1},
			{Number: 1, Units: -1},
			{Number: 1, Units: 1, Done: 1},
			{Number: 1, Units: 1, Done: -1},
			{Number: 1<<53 + 1, Units: 1},
			{Number: 1, Units: 1<<53 + 1},
		} {
			if _, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, m); err == nil {
				t.Errorf("take %+v: got no error", m)
			}
			if _, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, m); err == nil {
				t.Errorf("give %+v: got no error", m)
			}
		}
		if _, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 1}); err == nil {
			t.Error("give of nothing: got no error")
		}
		take := []string{f.saleKeys.Sale, f.saleKeys.Trusted, f.saleKeys.Generation}
		give := []string{f.saleKeys.Sale, "b", f.saleKeys.Trusted, "d", "e", "f", f.saleKeys.Generation}
		for _, args := range [][]any{{}, {1, 1, 0}, {1, 1, 1, 0}, {"x", 1, 0, 0}, {1, "x", 0, 0}, {1, "1.5", 0, 0}} {
			f.badCall("take.lua", take, args...)
			f.badCall("give.lua", give, append(args, saleID, 9)...)
		}
		f.badCall("give.lua", give, 1, 0, 0, 0, saleID, 9)
		f.badCall("give.lua", give, 1, 1, 0, 0, saleID, "x")
	})
	f.spoilt(f.saleKeys.Sale, func() error {
		_, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 1, Units: 1})
		return err
	})
	f.do("HSET", f.saleKeys.Sale, "stock", "x")
	f.unchanged("without a stock", func() {
		if _, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 1, Units: 1}); !redis.HasErrorPrefix(err,
			"BADSALE") {
			t.Errorf("take: got %v, want BADSALE", err)
		}
		_, _, err := lua.Give(f.ctx, f.rdb, f.saleKeys, saleID, plenty, lua.Move{Number: 1, Units: 1})
		if !redis.HasErrorPrefix(err, "BADSALE") {
			t.Errorf("give: got %v, want BADSALE", err)
		}
	})
}

// A rebuild installs what it knows of moves: late halves of those that it has decided about change nothing.
func TestInstallKnowsMoves(t *testing.T) {
	f := newFixture(t)
	fields := f.load(f.openSale(5))
	f.mustTake(lua.Move{Number: 9, Units: 2})
	f.step(lua.BeginVerify, "one", lua.Verifying)
	fields.Stock = 6
	code, err := lua.Install(f.ctx, f.rdb, f.installKeys(), "one", lua.InstallState{
		Fields: fields, Counters: lua.Counters{
			MovedIn: 4, MovedOut: 3, MovesDone: 5, MovesSettled: 2,
			MovesIn: []lua.Move{{Number: 7, Units: 1}}, MovesOut: []lua.Move{{Number: 6, Units: 3}, {Number: 8}},
		},
	})
	if err != nil || code != lua.InstallInstalled {
		t.Fatal(code, err)
	}
	want := moved(fields, 0, map[string]int64{
		"moved_in": 4, "moved_out": 3, "moves_done": 5, "moves_settled": 2, "in:7": 1, "out:6": 3, "out:8": 0,
	})
	same(t, "sale", f.hash(f.saleKeys.Sale), want)
	f.step(lua.FinishVerify, "one", lua.Trusted)
	f.unchanged("late halves", func() {
		same(t, "of a move that was made void", f.mustTake(lua.Move{Number: 8, Units: 5}), 0)
		same(t, "of one that had taken", f.mustTake(lua.Move{Number: 6, Units: 5}), 3)
		f.mustGive(lua.Move{Number: 7, Units: 1})
		if _, _, err := lua.Take(f.ctx, f.rdb, f.saleKeys, lua.Move{Number: 5, Units: 1}); !errors.Is(err, lua.ErrMoveFinished) {
			t.Errorf("of one that had ended: %v", err)
		}
	})
}
