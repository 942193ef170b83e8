package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/lua"
)

// colours are sales of one group, on one partition, with a limit together.
type colours struct {
	*fixture
	ids  []string
	keys map[string]lua.SaleKeys
}

func newColours(f *fixture, limit int, stock int64, ids ...string) *colours {
	c := &colours{fixture: f, ids: ids, keys: map[string]lua.SaleKeys{}}
	for _, id := range ids {
		c.keys[id] = f.layout.ForSale(partition, id)
		s := f.openSale(stock)
		s.Group, s.GroupLimit = "colours-of-"+ids[0], limit
		if _, err := lua.Load(f.ctx, f.rdb, c.keys[id].Sale, c.keys[id].Trusted, s); err != nil {
			f.Fatal(err)
		}
	}
	return c
}

func (c *colours) order(sale string, r lua.AdmitRequest) lua.AdmitOutcome {
	c.Helper()
	reply, err := lua.Admit(c.ctx, c.rdb, c.keys[sale], sale, plenty, []lua.AdmitRequest{r})
	if err != nil {
		c.Fatal(err)
	}
	return reply.Outcomes[0]
}

func (c *colours) join(sale string, r lua.AdmitRequest) lua.JoinReply {
	c.Helper()
	reply, err := lua.Join(c.ctx, c.rdb, c.keys[sale], r)
	if err != nil {
		c.Fatal(err)
	}
	return reply
}

func (c *colours) end(sale string, r lua.AdmitRequest) {
	c.Helper()
	_, _, err := lua.Release(c.ctx, c.rdb, c.keys[sale], sale, plenty,
		[]lua.ReleaseItem{{UserID: r.UserID, OrderID: r.OrderID}})
	if err != nil {
		c.Fatal(err)
	}
}

func units(n int, user string, quantity int) lua.AdmitRequest {
	r := request(n, user)
	r.Quantity = quantity
	return r
}

// TestOneOfEachColourTwoInAll: what a buyer has, or waits for, in the other sales of a group counts, and no other's.
func TestOneOfEachColourTwoInAll(t *testing.T) {
	c := newColours(newFixture(t), 2, 2, "red", "green", "blue")
	first, second := units(1, "ann", 1), units(2, "ann", 1)
	same(t, "red", c.order("red", first).Code, lua.AdmitAccepted)
	same(t, "two greens", c.order("green", units(3, "ann", 2)), lua.AdmitOutcome{Code: lua.AdmitOverGroupLimit, Held: 1})
	same(t, "one green", c.order("green", second).Code, lua.AdmitAccepted)
	same(t, "blue", c.order("blue", units(4, "ann", 1)), lua.AdmitOutcome{Code: lua.AdmitOverGroupLimit, Held: 2})
	same(t, "a second red one", c.order("red", units(5, "ann", 1)).Code, lua.AdmitAlreadyOrdered)
	same(t, "bob", c.order("blue", units(6, "bob", 2)).Code, lua.AdmitAccepted)
	same(t, "blue for cy", c.order("blue", units(7, "cy", 1)).Code, lua.AdmitSoldOut)

	// A place on a waitlist counts as the units, and leads to no more than the limit when its turn comes.
	got := c.join("blue", units(8, "ann", 1))
	if got.Code != lua.JoinOverGroupLimit || got.Held != 2 {
		t.Errorf("ann joins for a third: got %+v", got)
	}
	c.end("green", second)
	same(t, "ann joins for a second", c.join("blue", units(9, "ann", 1)).Code, lua.JoinJoined)
	same(t, "green beside it", c.order("green", units(10, "ann", 1)), lua.AdmitOutcome{Code: lua.AdmitOverGroupLimit, Held: 2})
	c.end("blue", units(6, "bob", 2))
	same(t, "her turn", c.order("blue", units(11, "ann", 1)).Code, lua.AdmitAlreadyOrdered)
	same(t, "green after it", c.order("green", units(12, "ann", 1)).Code, lua.AdmitOverGroupLimit)
	c.end("red", first)
	same(t, "green once more", c.order("green", units(13, "ann", 1)).Code, lua.AdmitAccepted)

	// A double click in one batch counts once.
	dan := []lua.AdmitRequest{units(20, "dan", 1), units(21, "dan", 1)}
	same(t, "dan's first", c.order("green", units(22, "dan", 1)).Code, lua.AdmitAccepted)
	reply, err := lua.Admit(c.ctx, c.rdb, c.keys["red"], "red", plenty, dan)
	if err != nil || reply.Outcomes[0].Code != lua.AdmitAccepted || reply.Outcomes[1].Code != lua.AdmitAlreadyOrdered {
		t.Errorf("dan clicks twice: got %+v, %v, want one order", reply.Outcomes, err)
	}

	// An accept that Redis may have lost was within the limit when it was made.
	reply, err = lua.Resubmit(c.ctx, c.rdb, c.keys["red"], "red", []lua.AdmitRequest{first})
	if err != nil || reply.Outcomes[0].Code != lua.AdmitAccepted {
		t.Errorf("resubmitted: got %+v, %v", reply.Outcomes, err)
	}
	c.do("HSET", c.keys["red"].Buyers, "eve", "spoilt")
	same(t, "beside a slot that can't be read", c.order("blue", units(14, "eve", 1)).Code, lua.AdmitOverGroupLimit)
}

// Whatever is ordered, waited for, handed over and ended, no buyer has more units of a group than its limit.
func TestGroupLimitProperty(t *testing.T) {
	f, runs := newFixture(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		c := newColours(f, limit, 4, fmt.Sprint("red", runs), fmt.Sprint("green", runs), fmt.Sprint("blue", runs))
		made := map[string]lua.AdmitRequest{} // by sale and user
		for n := range rapid.IntRange(1, 30).Draw(t, "steps") {
			sale := c.ids[rapid.IntRange(0, 2).Draw(t, "sale")]
			user := rapid.SampledFrom([]string{"ann", "bob", "cy"}).Draw(t, "user")
			r := units(n+1, user, rapid.IntRange(1, 3).Draw(t, "units"))
			r.KeyHash = fmt.Sprint("key", n)
			switch place := sale + " " + r.UserID; rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				if c.order(sale, r).Code == lua.AdmitAccepted {
					made[place] = r
				}
			case 2:
				if c.join(sale, r).Code == lua.JoinJoined {
					made[place] = r // its order has the same id
				}
			case 3:
				if r, ok := made[place]; ok {
					c.end(sale, r)
				}
			}
			c.withinLimit(t, limit)
		}
	})
}

func (c *colours) withinLimit(t *rapid.T, limit int) {
	t.Helper()
	taken := map[string]int{}
	for _, id := range c.ids {
		for _, key := range []string{c.keys[id].Buyers, c.keys[id].Waiting} {
			for user, value := range c.rdb.HGetAll(c.ctx, key).Val() {
				var quantity int
				if _, err := fmt.Sscan(strings.Fields(value)[1], &quantity); err != nil {
					t.Fatal(err)
				}
				taken[user] += quantity
			}
		}
	}
	for user, n := range taken {
		if n > limit {
			t.Fatalf("%s has or waits for %d units, of at most %d", user, n, limit)
		}
	}
}
