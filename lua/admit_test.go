package lua_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

func TestAdmitTakesStockFillsSlotsAndAppendsEvents(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(10))
	plain := lua.AdmitRequest{OrderID: orderID(1), Number: 71, UserID: "ann", Quantity: 3}
	keyed := lua.AdmitRequest{
		OrderID: orderID(2), Number: 72, UserID: "bob ünï {x}", Quantity: 1, KeyHash: "k",
		PayloadHash: "p",
	}
	traced := lua.AdmitRequest{OrderID: orderID(3), Number: 73, UserID: "cy", Quantity: 2, TraceParent: "00-ab-cd-01"}
	same(t, "state before", f.state(), state{
		Sale: saleHash(sale, 0, 0), Buyers: map[string]string{}, Others: map[string]string{},
	})

	earliest := f.nowMS()
	first := f.mustAdmit(plain, keyed)
	second := f.mustAdmit(traced)

	if first.NowMS < earliest || second.NowMS < first.NowMS || second.NowMS > f.nowMS() {
		t.Errorf("times: got %d and %d, want them in order and from %d on", first.NowMS, second.NowMS, earliest)
	}
	same(t, "first reply", first, lua.AdmitReply{
		NowMS: first.NowMS, Stock: 6, OpensMS: sale.OpensMS, ClosesMS: sale.ClosesMS, MaxQuantity: 3,
		Outcomes: []lua.AdmitOutcome{
			{Code: lua.AdmitAccepted, Slot: slotOf(plain, first.NowMS, 1)},
			{Code: lua.AdmitAccepted, Slot: slotOf(keyed, first.NowMS, 2)},
		},
	})
	sale.Stock = 4
	same(t, "state after", f.state(), state{
		Sale: saleHash(sale, 3, 0),
		Buyers: map[string]string{
			"ann":         fmt.Sprintf("%s 3 71 %d 1 - -", plain.OrderID, first.NowMS),
			"bob ünï {x}": fmt.Sprintf("%s 1 72 %d 2 k p", keyed.OrderID, first.NowMS),
			"cy":          fmt.Sprintf("%s 2 73 %d 3 - -", traced.OrderID, second.NowMS),
		},
		Events: []map[string]string{
			eventOf(plain, first.NowMS, 1), eventOf(keyed, first.NowMS, 2), eventOf(traced, second.NowMS, 3),
		},
		Others: map[string]string{},
	})
}

// What workers read must be what admit wrote.
func TestAdmitWritesEventsThatDecode(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(5))
	r := request(1, "ann")
	r.Number, r.TraceParent = math.MaxInt64, "00-ab-cd-01"
	reply := f.mustAdmit(r)

	entries, err := f.rdb.XRange(f.ctx, f.saleKeys.Orders, "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatalf("stream: got %v, %v, want one entry", entries, err)
	}
	event, err := pipeline.DecodeEvent(partition, entries[0].ID, entries[0].Values)
	if err != nil {
		t.Fatal(err)
	}
	if event.OrderID != r.OrderID || event.Number != math.MaxInt64 || event.UserID != "ann" || event.Quantity != 1 ||
		event.SaleID != saleID || event.Sequence != 1 || event.AcceptedAt.UnixMilli() != reply.NowMS ||
		event.TraceParent != r.TraceParent {
		t.Errorf("got %+v", event)
	}
}

// Each case spoils one thing about an open sale with 2 units, limit 3, and a buyer "ann" who has order 1 under key1.
func TestAdmitAnswersEveryCodeAndRefusalsChangeNothing(t *testing.T) {
	past, future := "1000", fmt.Sprint(int64(1)<<48)
	cases := []struct {
		name string
		set  []any // fields of the sale
		req  func(*lua.AdmitRequest)
		want lua.AdmitCode
	}{
		{"own order id", nil, func(r *lua.AdmitRequest) { *r = request(1, "ann") }, lua.AdmitAccepted},
		{
			"own order id, without its key", nil, func(r *lua.AdmitRequest) { *r = request(1, "ann"); r.KeyHash = "" },
			lua.AdmitAccepted,
		},
		{"same key and payload", nil, func(r *lua.AdmitRequest) { r.UserID, r.KeyHash = "ann", "key1" }, lua.AdmitReplayed},
		{"same key, other payload", nil, func(r *lua.AdmitRequest) {
			r.UserID, r.KeyHash, r.PayloadHash = "ann", "key1",
				"payload2"
		}, lua.AdmitKeyReused},
		{"other key", nil, func(r *lua.AdmitRequest) { r.UserID = "ann" }, lua.AdmitAlreadyOrdered},
		{
			"no key", nil, func(r *lua.AdmitRequest) { r.UserID, r.KeyHash, r.PayloadHash = "ann", "", "" },
			lua.AdmitAlreadyOrdered,
		},
		{
			"a key that begins like it", nil, func(r *lua.AdmitRequest) { r.UserID, r.KeyHash = "ann", "key" },
			lua.AdmitAlreadyOrdered,
		},
		{"more than is left", nil, func(r *lua.AdmitRequest) { r.Quantity = 3 }, lua.AdmitSoldOut},
		{"nothing left", []any{"stock", 0}, nil, lua.AdmitSoldOut},
		{"before the window", []any{"opens_ms", future, "closes_ms", fmt.Sprint(int64(1)<<48 + 1)}, nil, lua.AdmitNotOpen},
		{"after the window", []any{"closes_ms", past}, nil, lua.AdmitClosed},
		{"closed", []any{"state", "closed"}, nil, lua.AdmitClosed},
		{"paused", []any{"state", "paused"}, nil, lua.AdmitPaused},
		{"over the limit", nil, func(r *lua.AdmitRequest) { r.Quantity = 4 }, lua.AdmitOverLimit},

		// Which of two reasons is returned.
		{
			"slot before closed",
			[]any{"state", "closed"},
			func(r *lua.AdmitRequest) { r.UserID = "ann" },
			lua.AdmitAlreadyOrdered,
		},
		{
			"slot before the limit", nil, func(r *lua.AdmitRequest) { r.UserID, r.Quantity = "ann", 4 },
			lua.AdmitAlreadyOrdered,
		},
		{"replay after the window", []any{"closes_ms", past}, func(r *lua.AdmitRequest) {
			r.UserID, r.KeyHash = "ann",
				"key1"
		}, lua.AdmitReplayed},
		{
			"own order id when sold out",
			[]any{"stock", 0},
			func(r *lua.AdmitRequest) { *r = request(1, "ann") },
			lua.AdmitAccepted,
		},
		{
			"closed before the window",
			[]any{"state", "closed", "opens_ms", future, "closes_ms", fmt.Sprint(int64(1)<<48 + 1)},
			nil, lua.AdmitClosed,
		},
		{"window end before paused", []any{"state", "paused", "closes_ms", past}, nil, lua.AdmitClosed},
		{
			"paused before not open",
			[]any{"state", "paused", "opens_ms", future, "closes_ms", fmt.Sprint(int64(1)<<48 + 1)},
			nil, lua.AdmitPaused,
		},
		{
			"not open before the limit",
			[]any{"opens_ms", future, "closes_ms", fmt.Sprint(int64(1)<<48 + 1)},
			func(r *lua.AdmitRequest) { r.Quantity = 4 }, lua.AdmitNotOpen,
		},
		{"limit before sold out", []any{"stock", 0}, func(r *lua.AdmitRequest) { r.Quantity = 4 }, lua.AdmitOverLimit},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.load(f.openSale(3))
			ann := f.mustAdmit(request(1, "ann"))
			if c.set != nil {
				f.do(append([]any{"HSET", f.saleKeys.Sale}, c.set...)...)
			}
			r := request(2, "bob")
			if c.req != nil {
				c.req(&r)
			}
			want := lua.AdmitOutcome{Code: c.want}
			if r.UserID == "ann" {
				want.Slot = ann.Outcomes[0].Slot
			}
			f.unchanged(c.name, func() {
				same(t, "outcomes", f.mustAdmit(r).Outcomes, []lua.AdmitOutcome{want})
			})
		})
	}
}

// A full backlog stops what would add to it, and nothing else: a buyer with a slot is answered as ever, and a
// permanent reason is returned before a temporary one.
func TestAdmitStopsAtAFullBacklog(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(4))
	f.mustAdmit(request(1, "ann"))
	replay, large, many := request(2, "ann"), request(3, "bob"), request(4, "cy")
	replay.KeyHash = "key1"
	large.Quantity = 4 // over the limit
	many.Quantity = 3
	f.maxEvents = 3
	reply := f.mustAdmit(request(1, "ann"), replay, large, request(5, "dan"), request(6, "eve"), request(7, "fay"), many)
	same(t, "codes", codes(reply), []lua.AdmitCode{
		lua.AdmitAccepted, lua.AdmitReplayed, lua.AdmitOverLimit, lua.AdmitAccepted, lua.AdmitAccepted, lua.AdmitBacklogFull,
		lua.AdmitSoldOut,
	})
	for _, f.maxEvents = range []int64{3, 2, 1} { // fewer than there are: the limit was lowered
		f.unchanged("admit with a full backlog", func() {
			same(t, "codes", codes(f.mustAdmit(request(7, "fay"), replay)),
				[]lua.AdmitCode{lua.AdmitBacklogFull, lua.AdmitReplayed})
		})
	}
	f.maxEvents = 3
	f.do("XDEL", f.saleKeys.Orders, f.rdb.XRange(f.ctx, f.saleKeys.Orders, "-", "+").Val()[0].ID)
	same(t, "codes with room again", codes(f.mustAdmit(request(7, "fay"))), []lua.AdmitCode{lua.AdmitAccepted})
}

// Two requests without a key have nothing in common, although their slots say "-" for the same thing.
func TestAdmitWithoutKeysIsNeverAReplay(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(3))
	plain := lua.AdmitRequest{OrderID: orderID(1), Number: 1, UserID: "ann", Quantity: 1}
	f.mustAdmit(plain)
	plain.OrderID = orderID(2)
	f.unchanged("admit", func() {
		same(t, "codes", codes(f.mustAdmit(plain)), []lua.AdmitCode{lua.AdmitAlreadyOrdered})
	})
}

func TestAdmitDistinguishesAnAbsentSaleFromASoldOutOne(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(3))
	f.mustAdmit(request(1, "ann"))
	f.do("DEL", f.saleKeys.Sale)
	f.unchanged("admit without the sale", func() {
		reply := f.mustAdmit(request(1, "ann"), request(2, "bob"))
		same(t, "reply", reply, lua.AdmitReply{NowMS: reply.NowMS, Outcomes: []lua.AdmitOutcome{
			{Code: lua.AdmitNotLoaded}, {Code: lua.AdmitNotLoaded},
		}})
	})
}

func TestAdmitBatchDecidesLikeCallsInARow(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(4))
	big := request(5, "eve")
	big.Quantity = 2
	replay := request(6, "ann")
	replay.KeyHash = "key1"
	reused := replay
	reused.PayloadHash = "payload2"
	reply := f.mustAdmit(
		request(1, "ann"), request(1, "ann"), request(2, "ann"), replay, reused, // one buyer, five times
		request(3, "cy"), request(4, "dan"), big, request(7, "fay"), request(8, "gus"), // 4 units, the last two contend
	)
	same(t, "codes", codes(reply), []lua.AdmitCode{
		lua.AdmitAccepted, lua.AdmitAccepted, lua.AdmitAlreadyOrdered, lua.AdmitReplayed, lua.AdmitKeyReused,
		lua.AdmitAccepted, lua.AdmitAccepted, lua.AdmitSoldOut, lua.AdmitAccepted, lua.AdmitSoldOut,
	})
	for i, o := range reply.Outcomes[:5] {
		same(t, fmt.Sprint("ann's slot in outcome ", i), o.Slot, slotOf(request(1, "ann"), reply.NowMS, 1))
	}
	var events []map[string]string
	buyers := map[string]string{}
	for i, r := range []lua.AdmitRequest{request(1, "ann"), request(3, "cy"), request(4, "dan"), request(7, "fay")} {
		events = append(events, eventOf(r, reply.NowMS, int64(i+1)))
		buyers[r.UserID] = slotText(slotOf(r, reply.NowMS, int64(i+1)))
	}
	sale.Stock = 0
	same(t, "state", f.state(), state{
		Sale: saleHash(sale, 4, 0), Buyers: buyers, Events: events,
		Others: map[string]string{},
	})
}

// A client that lost the reply sends the same batch again, and a full one at that.
func TestAdmitTwiceAnswersTheSameAndWritesOnce(t *testing.T) {
	f := newFixture(t)
	f.load(f.openSale(100))
	var reqs []lua.AdmitRequest
	for n := range lua.MaxAdmitBatch {
		reqs = append(reqs, request(n+1, fmt.Sprint("user", n)))
	}
	first := f.mustAdmit(reqs...)
	f.unchanged("the second run", func() {
		second := f.mustAdmit(reqs...)
		second.NowMS = first.NowMS
		same(t, "second reply", second, first)
	})
	if got := f.rdb.XLen(f.ctx, f.saleKeys.Orders).Val(); got != 100 {
		t.Errorf("events: got %d, want 100", got)
	}
}

// The window is [opens_ms, closes_ms) by Redis' clock, to the millisecond: every reply's code follows from its own
// time. The test goes on until it has been answered in the very milliseconds of both edges.
func TestAdmitWindowEdges(t *testing.T) {
	f := newFixture(t)
	sale := f.load(f.openSale(10))
	hit := map[string]bool{}
	testkit.Eventually(t, callLimit/2, "an answer at either edge of a window", func() bool {
		sale.Version++
		sale.OpensMS = f.nowMS() + 5
		sale.ClosesMS = sale.OpensMS + 5
		f.mustAdjust(sale)
		for code := lua.AdmitCode(""); code != lua.AdmitClosed; {
			code = f.checkWindow(sale, hit)
		}
		return hit["opens"] && hit["closes"]
	})
}

// checkWindow sends many requests in one go, so that the server decides several in each millisecond. They are over the
// limit, so nothing is written.
func (f *fixture) checkWindow(sale lua.SaleFields, hit map[string]bool) (last lua.AdmitCode) {
	f.Helper()
	source := f.source("admit.lua")
	pipe := f.rdb.Pipeline()
	for range 100 {
		k := f.saleKeys
		keys := []string{k.Sale, k.Buyers, k.Orders, k.Trusted, k.Waitlist, k.Waiting, k.Generation, k.Ended}
		pipe.Eval(f.ctx, source, keys, saleID, "new", plenty, 0, orderID(1), 1, "ann", 99, "-", "-", "")
	}
	replies, err := pipe.Exec(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	for _, reply := range replies {
		answer := reply.(*redis.Cmd).Val().([]any)
		now, got, want := answer[0].(int64), lua.AdmitCode(answer[5].(string)), lua.AdmitOverLimit
		switch {
		case now < sale.OpensMS:
			want = lua.AdmitNotOpen
		case now >= sale.ClosesMS:
			want = lua.AdmitClosed
		}
		if got != want {
			f.Fatalf("at %d in [%d, %d): got %s, want %s", now, sale.OpensMS, sale.ClosesMS, got, want)
		}
		hit["opens"] = hit["opens"] || now == sale.OpensMS
		hit["closes"] = hit["closes"] || now == sale.ClosesMS
		last = got
	}
	return last
}

// Lua has doubles and prints 14 digits: no integer may pass through either unawares.
func TestAdmitKeepsLargeIntegersExact(t *testing.T) {
	f := newFixture(t)
	sale := f.load(lua.SaleFields{
		Stock: 1 << 31, Total: 1 << 31, OpensMS: 1, ClosesMS: 1 << 48, MaxQuantity: math.MaxInt32, State: "active",
		Version: 1<<53 - 1,
	})
	f.do("HSET", f.saleKeys.Sale, "accepted", int64(1<<53-3))
	one := lua.AdmitRequest{OrderID: orderID(1), Number: math.MaxInt64, UserID: "ann", Quantity: 1}
	many := lua.AdmitRequest{OrderID: orderID(2), Number: math.MaxInt64 - 1, UserID: "bob", Quantity: math.MaxInt32}
	reply := f.mustAdmit(one, many)

	same(t, "reply", reply, lua.AdmitReply{
		NowMS: reply.NowMS, Stock: 0, OpensMS: 1, ClosesMS: 1 << 48, MaxQuantity: math.MaxInt32,
		Outcomes: []lua.AdmitOutcome{
			{Code: lua.AdmitAccepted, Slot: slotOf(one, reply.NowMS, 1<<53-2)},
			{Code: lua.AdmitAccepted, Slot: slotOf(many, reply.NowMS, 1<<53-1)},
		},
	})
	sale.Stock = 0
	same(t, "state", f.state(), state{
		Sale: saleHash(sale, 1<<53-1, 0),
		Buyers: map[string]string{
			"ann": fmt.Sprintf("%s 1 9223372036854775807 %d 9007199254740990 - -", orderID(1), reply.NowMS),
			"bob": fmt.Sprintf("%s 2147483647 9223372036854775806 %d 9007199254740991 - -", orderID(2), reply.NowMS),
		},
		Events: []map[string]string{eventOf(one, reply.NowMS, 1<<53-2), eventOf(many, reply.NowMS, 1<<53-1)},
		Others: map[string]string{},
	})
	same(t, "second run", f.mustAdmit(many).Outcomes, reply.Outcomes[1:])

	given, err := release(f, "bob", orderID(2))
	if err != nil || !given[0] {
		t.Fatalf("release: got %v, %v", given, err)
	}
	sale.Stock = math.MaxInt32
	same(t, "sale after a release", f.hash(f.saleKeys.Sale), saleHash(sale, 1<<53-1, 1))
}

// A forged entry can carry the accept counter to its end. What would get a sequence that no event may have is refused
// before it takes anything, and not accepted and buried.
func TestAdmitRefusesWhatItCannotCount(t *testing.T) {
	f := newFixture(t)
	f.load(lua.SaleFields{Stock: 9, Total: 9, OpensMS: 1, ClosesMS: 1 << 48, MaxQuantity: 2, State: "active", Version: 1})
	f.do("HSET", f.saleKeys.Sale, "accepted", int64(1<<53-1))
	batch := make([]lua.AdmitRequest, 3)
	for i := range batch {
		batch[i] = lua.AdmitRequest{
			OrderID: orderID(i + 1), Number: int64(i + 1), UserID: fmt.Sprint("buyer-", i),
			Quantity: 1,
		}
	}
	for range 2 {
		got := f.mustAdmit(batch...)
		if got.Stock != 8 || got.Outcomes[0].Code != lua.AdmitAccepted || got.Outcomes[0].Slot.Sequence != 1<<53 ||
			got.Outcomes[1].Code != lua.AdmitBacklogFull || got.Outcomes[2].Code != lua.AdmitBacklogFull {
			t.Fatalf("got %+v, want one accepted", got)
		}
	}
	again, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, "drop-1", batch[1:])
	if err != nil || again.Outcomes[0].Code != lua.AdmitBacklogFull {
		t.Errorf("again: got %+v, %v, want it refused", again, err)
	}
}
