package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

// read delivers up to n new entries to a consumer and returns their ids.
func (f *fixture) read(consumer string, n int64) []string {
	f.Helper()
	streams, err := f.rdb.XReadGroup(f.ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{f.saleKeys.Orders, ">"}, Count: n, Block: -1,
	}).Result()
	if err != nil {
		f.Fatal(err)
	}
	var ids []string
	for _, entry := range streams[0].Messages {
		ids = append(ids, entry.ID)
	}
	return ids
}

func (f *fixture) lockKey(n int) string { return f.layout.OrderLock(partition, orderID(n)) }

// delivered is a sale with n events, all pending at consumer w1; it returns their entry ids.
func (f *fixture) delivered(n int) []string {
	f.Helper()
	f.load(f.openSale(1000))
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0", "MKSTREAM")
	for i := range n {
		f.mustAdmit(request(i+1, fmt.Sprint("user", i+1)))
	}
	return f.read("w1", int64(n))
}

func (f *fixture) mustSettle(items ...lua.SettleItem) int64 {
	f.Helper()
	acked, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "token", items)
	if err != nil {
		f.Fatal(err)
	}
	return acked
}

func TestSettleAcknowledgesDeletesAndUnlocks(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(5)
	ours, others, gone, spoilt := f.lockKey(1), f.lockKey(2), f.lockKey(3), f.lockKey(4)
	f.do("SET", ours, "token")
	f.do("SET", others, "token-of-another") // begins like ours: tokens are compared whole
	f.do("RPUSH", spoilt, "token")          // not a lock at all
	before := f.state()
	same(t, "pending before", before.Pending, []string{"0 w1", "1 w1", "2 w1", "3 w1", "4 w1"})
	items := []lua.SettleItem{
		{EntryID: ids[0], LockKey: ours},
		{EntryID: ids[1], LockKey: others},
		{EntryID: ids[2]}, // held no lock
		{EntryID: ids[3], LockKey: spoilt},
		{EntryID: "1-1", LockKey: gone}, // not in the stream, its lock expired
	}
	if got := f.mustSettle(items...); got != 4 {
		t.Errorf("acknowledged: got %d, want 4", got)
	}

	want := before
	want.Events, want.Pending = before.Events[4:], []string{"0 w1"}
	want.Others = map[string]string{others[len(f.layout.Prefix):]: "token-of-another"}
	same(t, "state after", f.state(), want)
	if f.rdb.LLen(f.ctx, spoilt).Val() != 1 {
		t.Error("a key that is no lock was deleted")
	}
	f.unchanged("the second run", func() {
		if got := f.mustSettle(items...); got != 0 {
			t.Errorf("acknowledged: got %d, want 0", got)
		}
	})
}

// A worker may settle what another consumer claimed meanwhile: the order is in Postgres, whichever worker settles it.
func TestSettleOfWhatAnotherConsumerClaimed(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(1)
	f.do("XCLAIM", f.saleKeys.Orders, group, "w2", 0, ids[0])
	if got := f.mustSettle(lua.SettleItem{EntryID: ids[0]}); got != 1 {
		t.Errorf("acknowledged: got %d, want 1", got)
	}
	if s := f.state(); len(s.Events) != 0 || len(s.Pending) != 0 {
		t.Errorf("got %+v, want an empty stream", s)
	}
}

// After the group was lost and made anew the entries are undelivered again: they stay, and are delivered once more.
func TestSettleLeavesWhatIsUndelivered(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(2)
	f.do("SET", f.lockKey(1), "token")
	item := lua.SettleItem{EntryID: ids[0], LockKey: f.lockKey(1)}
	f.do("XGROUP", "DESTROY", f.saleKeys.Orders, group)
	if got := f.mustSettle(item); got != 0 {
		t.Errorf("without the group, acknowledged: got %d, want 0", got)
	}
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0")
	if got := f.mustSettle(item, lua.SettleItem{EntryID: ids[1]}); got != 0 {
		t.Errorf("with a new group, acknowledged: got %d, want 0", got)
	}
	s := f.state()
	if len(s.Events) != 2 || len(s.Others) != 0 {
		t.Errorf("got %+v, want both events and no lock", s)
	}
	same(t, "delivered again", f.read("w2", 10), ids)
}

func TestSettleAFullBatch(t *testing.T) {
	f := newFixture(t)
	f.do("XGROUP", "CREATE", f.saleKeys.Orders, group, "0", "MKSTREAM")
	pipe := f.rdb.Pipeline()
	var items []lua.SettleItem
	for i := range lua.MaxSettleBatch {
		pipe.XAdd(f.ctx, &redis.XAddArgs{Stream: f.saleKeys.Orders, Values: []string{"v", "1"}})
		pipe.Set(f.ctx, f.lockKey(i), "token", 0)
		items = append(items, lua.SettleItem{LockKey: f.lockKey(i)})
	}
	if _, err := pipe.Exec(f.ctx); err != nil {
		t.Fatal(err)
	}
	for i, id := range f.read("w1", lua.MaxSettleBatch) {
		items[i].EntryID = id
	}
	if got := f.mustSettle(items...); got != lua.MaxSettleBatch {
		t.Errorf("acknowledged: got %d, want %d", got, lua.MaxSettleBatch)
	}
	if s := f.state(); len(s.Events)+len(s.Pending)+len(s.Others) != 0 {
		t.Errorf("got %+v, want nothing left", s)
	}
}

func TestSettleWithAStreamOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(1)
	f.do("SET", f.lockKey(1), "token")
	f.spoilt(f.saleKeys.Orders, func() error {
		_, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "token",
			[]lua.SettleItem{{EntryID: ids[0], LockKey: f.lockKey(1)}})
		return err
	})
}

func TestSettleScriptRefusesBadArguments(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(2)
	f.do("SET", f.lockKey(1), "token")
	keys := []string{f.saleKeys.Orders, f.lockKey(1)}
	for _, args := range [][]any{
		{},
		{group},
		{group, "token"},
		{group, "token", ""},
		{group, "token", ids[0], "x"},
		{
			group, "token", ids[0],
			"1",
		},
		{group, "token", ids[0], "1-1 "},
		{group, "token", ids[0], "token"},
		{group, "token", "-1", ids[0]},
	} {
		f.unchanged("settle", func() {
			f.badCall("settle.lua", keys, args...)
		})
	}
}

func TestSettleRefusesBadItemsUnsent(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(1)
	f.unchanged("settle", func() {
		for _, items := range [][]lua.SettleItem{
			nil, make([]lua.SettleItem, lua.MaxSettleBatch+1),
			{{EntryID: ids[0]}, {}},
			{{EntryID: ids[0]}, {EntryID: "1"}},
			{{EntryID: ids[0]}, {EntryID: "1-"}},
			{{EntryID: ids[0]}, {EntryID: "*"}},
			{{EntryID: ids[0]}, {EntryID: "1-1-1"}},
			{{EntryID: ids[0]}, {EntryID: "18446744073709551616-0"}},
			{{EntryID: ids[0], LockKey: f.lockKey(1)}},
		} {
			if _, err := lua.Settle(f.ctx, f.rdb, f.saleKeys.Orders, group, "", items); err == nil {
				t.Errorf("%d items: got no error", len(items))
			}
		}
	})
}

// A sale's mark only rises, whatever order batches are settled in; a sale that is not there gets none, and a key that
// is no sale is left alone.
func TestSettleMarksSales(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(5)
	missing, spoilt := f.saleKeys.Sale+"-missing", f.saleKeys.Sale+"-spoilt"
	f.do("SET", spoilt, "x")
	settled := func() string { return f.rdb.HGet(f.ctx, f.saleKeys.Sale, "settled").Val() }
	for i, step := range []struct {
		stored int64
		want   string
	}{{7, "7"}, {9, "9"}, {8, "9"}} {
		f.mustSettle(
			lua.SettleItem{EntryID: ids[i], SaleKey: f.saleKeys.Sale, Stored: step.stored - 1},
			lua.SettleItem{EntryID: "1-1", SaleKey: f.saleKeys.Sale, Stored: step.stored},
			lua.SettleItem{EntryID: "1-2", SaleKey: missing, Stored: 3},
			lua.SettleItem{EntryID: "1-3", SaleKey: spoilt, Stored: 3},
		)
		if got := settled(); got != step.want {
			t.Errorf("after %d rows: the mark is %q, want %s", step.stored, got, step.want)
		}
	}
	f.do("SET", f.lockKey(4), "token")
	f.mustSettle(lua.SettleItem{EntryID: ids[3], LockKey: f.lockKey(4)})
	if n := f.rdb.Exists(f.ctx, missing, f.lockKey(4)).Val(); n != 0 || settled() != "9" {
		t.Errorf("%d keys are left, and the mark is %q; want none, 9", n, settled())
	}
}
