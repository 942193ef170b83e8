package lua_test

import (
	"testing"

	"sluice/lua"
)

func (f *fixture) mustReap(consumer string) lua.ReapCode {
	f.Helper()
	got, err := lua.Reap(f.ctx, f.rdb, f.saleKeys.Orders, f.layout.Worker(partition, consumer), group, consumer)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

// A dead worker's consumer goes only after its heartbeat and its pending entries have gone.
func TestReapRemovesOnlyTheDeadAndEmpty(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(2) // pending at w1
	heartbeat := f.layout.Worker(partition, "w1")
	f.do("SET", heartbeat, "alive")
	f.do("XGROUP", "CREATECONSUMER", f.saleKeys.Orders, group, "w10")

	f.unchanged("reap with a heartbeat", func() { same(t, "result", f.mustReap("w1"), lua.ReapAlive) })
	f.do("DEL", heartbeat)
	f.unchanged("reap with pending entries", func() { same(t, "result", f.mustReap("w1"), lua.ReapPending) })
	f.mustSettle(lua.SettleItem{EntryID: ids[0]})
	f.unchanged("reap with a pending entry", func() { same(t, "result", f.mustReap("w1"), lua.ReapPending) })
	f.do("XCLAIM", f.saleKeys.Orders, group, "w2", 0, ids[1])

	before := f.state()
	same(t, "consumers before", before.Consumers, []string{"w1", "w10", "w2"})
	same(t, "result", f.mustReap("w1"), lua.ReapRemoved)
	want := before
	want.Consumers = []string{"w10", "w2"}
	same(t, "state after", f.state(), want)
	f.unchanged("the second run", func() { same(t, "result", f.mustReap("w1"), lua.ReapAbsent) })
	f.unchanged("a name that others begin with", func() { same(t, "result", f.mustReap("w"), lua.ReapAbsent) })
}

func TestReapWithoutStreamOrGroup(t *testing.T) {
	f := newFixture(t)
	same(t, "without the stream", f.mustReap("w1"), lua.ReapAbsent)
	f.load(f.openSale(5))
	f.mustAdmit(request(1, "ann"))
	f.unchanged("without the group", func() { same(t, "result", f.mustReap("w1"), lua.ReapAbsent) })
}

func TestReapWithAStreamOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.spoilt(f.saleKeys.Orders, func() error {
		_, err := lua.Reap(f.ctx, f.rdb, f.saleKeys.Orders, f.layout.Worker(partition, "w1"), group, "w1")
		return err
	})
}
