package lua_test

import (
	"testing"
	"time"

	"sluice/lua"
)

func entriesOf(ids []string, deliveries int64) []lua.PendingEntry {
	entries := make([]lua.PendingEntry, len(ids))
	for i, id := range ids {
		entries[i] = lua.PendingEntry{ID: id, Deliveries: deliveries}
	}
	return entries
}

// Entries of a dead worker change hands; one whose event was deleted is reported as lost, once, instead of vanishing.
func TestClaimTakesOverAndReportsTheLost(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(4) // pending at w1
	claim := func(minIdle time.Duration, ids ...string) (got []string, lost []string) {
		claimed, lost, err := lua.Claim(f.ctx, f.rdb, lua.Consumer{Stream: f.saleKeys.Orders, Group: group, Name: "w2"},
			minIdle, entriesOf(ids, 0))
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range claimed {
			got = append(got, m.ID)
			if m.Values["v"] != "1" || m.Values["s"] == "" {
				t.Errorf("entry %s came with %v", m.ID, m.Values)
			}
		}
		return got, lost
	}
	before := f.state()
	claim(time.Hour, ids...)
	after := f.state()
	after.Consumers = before.Consumers // Redis 8 adds a consumer that claims nothing
	same(t, "after a claim of what is too young", after, before)
	f.mustSettle(lua.SettleItem{EntryID: ids[1]})
	f.do("XDEL", f.saleKeys.Orders, ids[2])

	got, lost := claim(0, ids...)
	same(t, "claimed", got, []string{ids[0], ids[3]})
	same(t, "lost", lost, []string{ids[2]})
	got, lost = claim(0, ids[2], ids[1])
	if len(got) != 0 || len(lost) != 0 {
		t.Errorf("the second run: got %v and lost %v, want none", got, lost)
	}
}

func TestClaimOfAStreamOfAnotherTypeChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.spoilt(f.saleKeys.Orders, func() error {
		_, _, err := lua.Claim(f.ctx, f.rdb, lua.Consumer{Stream: f.saleKeys.Orders, Group: group, Name: "w2"}, 0,
			entriesOf([]string{"1-1"}, 0))
		return err
	})
}

// Of two callers that have waited for the same delivery by clocks of their own one takes it over, however young it is.
func TestClaimByTheNumberOfDeliveries(t *testing.T) {
	f := newFixture(t)
	ids := f.delivered(2)
	claim := func(deliveries int64) int {
		claimed, lost, err := lua.Claim(f.ctx, f.rdb, lua.Consumer{Stream: f.saleKeys.Orders, Group: group, Name: "w2"},
			time.Hour, entriesOf(ids, deliveries))
		if err != nil || len(lost) > 0 {
			f.Fatal(err, lost)
		}
		return len(claimed)
	}
	f.unchanged("a claim of another delivery", func() { claim(2) })
	same(t, "claimed", claim(1), 2)
	f.unchanged("a second claim of the first delivery", func() { claim(1) })
	same(t, "claimed", claim(2), 2)
}
