package lua_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/lua"
)

func (f *fixture) join(r lua.AdmitRequest) lua.JoinReply {
	f.Helper()
	reply, err := lua.Join(f.ctx, f.rdb, f.saleKeys, r)
	if err != nil {
		f.Fatal(err)
	}
	return reply
}

// joins lets a buyer wait and expects a position.
func (f *fixture) joins(n int, user string, quantity int, position int64) lua.WaitlistEntry {
	f.Helper()
	r := request(n, user)
	r.Quantity = quantity
	reply := f.join(r)
	if reply.Code != lua.JoinJoined || reply.Position != position {
		f.Fatalf("join of %s: got %+v, want position %d", user, reply, position)
	}
	return reply.Entry
}

func (f *fixture) leave(user string, n int) (lua.LeaveCode, lua.HandedOver) {
	f.Helper()
	code, _, handed, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
		lua.ReleaseItem{UserID: user, OrderID: orderID(n)})
	if err != nil {
		f.Fatal(err)
	}
	return code, handed
}

// giveBack releases a buyer's order and returns what was handed over.
func (f *fixture) giveBack(user string, n int) lua.HandedOver {
	f.Helper()
	released, handed, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
		[]lua.ReleaseItem{{UserID: user, OrderID: orderID(n)}})
	if err != nil || !released[0] {
		f.Fatalf("release of %s: got %v, %v", user, released, err)
	}
	return handed
}

func (f *fixture) handOver() lua.HandedOver {
	f.Helper()
	handed, err := lua.HandOver(f.ctx, f.rdb, f.saleKeys, saleID, plenty)
	if err != nil {
		f.Fatal(err)
	}
	return handed
}

// soldOut is a sale whose units are all sold to "first-1" and so on.
func (f *fixture) soldOut(units int) lua.SaleFields {
	f.Helper()
	sale := f.load(f.openSale(int64(units)))
	for n := range units {
		f.mustAdmit(request(n+1, fmt.Sprint("first-", n+1)))
	}
	return sale
}

func TestAReleasedUnitGoesToTheLongestWaiting(t *testing.T) {
	f := newFixture(t)
	sale := f.soldOut(2)
	ann := f.joins(11, "ann", 1, 1)
	f.joins(12, "bob", 1, 2)
	f.unchanged("joining again", func() {
		same(t, "ann's entry", f.joins(13, "ann", 1, 1), ann)
	})
	before := f.nowMS()
	same(t, "handed over", f.giveBack("first-1", 1), lua.HandedOver{Orders: []string{orderID(11)}})
	s := f.state()
	slot, err := lua.ParseSlot(s.Buyers["ann"])
	if err != nil || slot.AcceptedMS < before || slot.AcceptedMS > f.nowMS() {
		t.Fatalf("ann's slot: %+v, %v", slot, err)
	}
	same(t, "slot", slot, slotOf(request(11, "ann"), slot.AcceptedMS, 3))
	same(t, "event", s.Events[2], handedOver(request(11, "ann"), slot.AcceptedMS, 3, ann.Ticket))
	want := saleHash(sale, 3, 1)
	want["stock"], want["tickets"], want["waiting"] = "0", "2", "1"
	same(t, "sale", s.Sale, want)
	same(t, "waitlist", s.Waitlist, []string{"bob"})
	same(t, "ann orders", f.mustAdmit(request(14, "ann")).Outcomes[0].Code, lua.AdmitAlreadyOrdered)
	same(t, "ann joins", f.join(request(15, "ann")).Code, lua.JoinAlreadyOrdered)
	same(t, "handed over", f.giveBack("ann", 11), lua.HandedOver{Orders: []string{orderID(12)}})
	same(t, "ann's next entry", f.joins(16, "ann", 1, 1).Ticket, int64(3))
}

// A buyer who wants more than is free keeps the others waiting, newcomers too, until that buyer is served or leaves.
func TestNobodyIsOvertaken(t *testing.T) {
	f := newFixture(t)
	f.soldOut(3)
	f.joins(11, "ann", 2, 1)
	f.joins(12, "bob", 1, 2)
	f.joins(13, "cy", 1, 3)
	same(t, "one unit", f.giveBack("first-1", 1), lua.HandedOver{})
	same(t, "a newcomer", codes(f.mustAdmit(request(20, "dan"))), []lua.AdmitCode{lua.AdmitSoldOut})
	f.joins(14, "dan", 1, 4)
	code, handed := f.leave("ann", 11)
	same(t, "ann", code, lua.LeaveLeft)
	same(t, "after ann", handed, lua.HandedOver{Orders: []string{orderID(12)}})
	same(t, "the next units", f.giveBack("first-2", 2), lua.HandedOver{Orders: []string{orderID(13)}})
	same(t, "the next units", f.giveBack("first-3", 3), lua.HandedOver{Orders: []string{orderID(14)}})
	same(t, "and then", f.giveBack("bob", 12), lua.HandedOver{})
	same(t, "a newcomer", codes(f.mustAdmit(request(21, "eve"))), []lua.AdmitCode{lua.AdmitAccepted})
}

func TestLeavingNamesOneEntry(t *testing.T) {
	f := newFixture(t)
	f.soldOut(1)
	f.joins(11, "ann", 1, 1)
	code, _ := f.leave("ann", 12)
	same(t, "another's order id", code, lua.LeaveAbsent)
	code, _ = f.leave("ann", 11)
	same(t, "leave", code, lua.LeaveLeft)
	f.joins(13, "ann", 1, 1)
	code, _ = f.leave("ann", 11) // a late retry
	same(t, "the retry", code, lua.LeaveAbsent)
	same(t, "waitlist", f.state().Waitlist, []string{"ann"})
	f.giveBack("first-1", 1)
	f.unchanged("a leave that comes too late", func() {
		code, _ = f.leave("ann", 13)
		same(t, "too late", code, lua.LeaveOrdered)
	})
	code, _ = f.leave("ann", 11)
	same(t, "the retry, later", code, lua.LeaveAbsent)
}

func TestJoinCodes(t *testing.T) {
	f := newFixture(t)
	sale := f.openSale(2)
	sale.Waitlist = 1
	f.load(sale)
	same(t, "units are free", f.join(request(1, "ann")).Code, lua.JoinAvailable)
	big := request(2, "ann")
	big.Quantity = 3 // what the sale allows in one order, and more than it has
	same(t, "more than there are", f.join(big).Code, lua.JoinOverLimit)
	f.mustAdmit(request(3, "bob"))
	pair := request(4, "ann")
	pair.Quantity = 2
	same(t, "one unit of two is free", f.join(pair).Code, lua.JoinJoined)
	same(t, "full", f.join(request(5, "cy")).Code, lua.JoinFull)
	one := request(4, "ann")
	same(t, "another quantity, the same key", f.join(one).Code, lua.JoinKeyReused)
	one.KeyHash = "other"
	same(t, "another quantity", f.join(one).Code, lua.JoinAlreadyWaiting)
	f.leave("ann", 4)
	for state, want := range map[string]lua.JoinCode{"paused": lua.JoinPaused, "closed": lua.JoinClosed} {
		f.do("HSET", f.saleKeys.Sale, "state", state)
		same(t, state, f.join(pair).Code, want)
	}
	f.do("HSET", f.saleKeys.Sale, "state", "active", "closes_ms", f.nowMS()-1)
	same(t, "over", f.join(pair).Code, lua.JoinClosed)
	f.do("HSET", f.saleKeys.Sale, "closes_ms", int64(1)<<50, "opens_ms", int64(1)<<49)
	same(t, "not open", f.join(pair).Code, lua.JoinNotOpen)
	f.do("HSET", f.saleKeys.Sale, "waitlist", 0)
	same(t, "no waitlist", f.join(pair).Code, lua.JoinNoWaitlist)
	f.do("HDEL", f.saleKeys.Sale, "waitlist", "tickets", "waiting") // as an earlier build loaded it
	same(t, "an earlier build's sale", f.join(pair).Code, lua.JoinNoWaitlist)
	f.giveBack("bob", 3)
	f.do("DEL", f.saleKeys.Sale)
	same(t, "no sale", f.join(pair).Code, lua.JoinNotLoaded)
	f.do("DEL", f.saleKeys.Trusted)
	same(t, "not verified", f.join(pair).Code, lua.JoinUntrusted)
	if _, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
		lua.ReleaseItem{UserID: "ann", OrderID: orderID(4)}); !errors.Is(err, lua.ErrUntrusted) {
		t.Errorf("leave: got %v", err)
	}
	if _, err := lua.HandOver(f.ctx, f.rdb, f.saleKeys, saleID, plenty); !errors.Is(err, lua.ErrUntrusted) {
		t.Errorf("hand over: got %v", err)
	}
}

// While the sale is not open nothing is handed over; what is free then is, as soon as it is open again.
func TestNothingIsHandedOverWhileTheSaleIsShut(t *testing.T) {
	f := newFixture(t)
	open := f.soldOut(3)
	for i, user := range []string{"ann", "bob", "cy"} {
		f.joins(11+i, user, 1, int64(i+1))
	}
	shut := map[string]func(*lua.SaleFields){
		"paused": func(s *lua.SaleFields) { s.State = "paused" },
		"over":   func(s *lua.SaleFields) { s.ClosesMS = f.nowMS() - 1 },
		"early":  func(s *lua.SaleFields) { s.OpensMS = s.ClosesMS - 1 },
	}
	n := 0
	for name, change := range shut {
		n++
		s := open
		s.Version = int64(2 * n)
		change(&s)
		same(t, name, f.mustAdjust(s), lua.AdjustAdjusted)
		same(t, name+": released", f.giveBack(fmt.Sprint("first-", n), n), lua.HandedOver{})
		same(t, name+": asked", f.handOver(), lua.HandedOver{})
		open.Version = int64(2*n + 1)
		result, handed, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, open)
		if err != nil || result != lua.AdjustAdjusted {
			t.Fatalf("%s: open again: %s, %v", name, result, err)
		}
		same(t, name+": open again", handed, lua.HandedOver{Orders: []string{orderID(10 + n)}})
	}
}

// One call does a bounded piece of the work and says that there is more.
func TestARestockIsHandedOverInPieces(t *testing.T) {
	f := newFixture(t)
	const buyers = lua.MaxHandOver + 50
	sale := f.soldOut(1)
	for n := range buyers {
		f.joins(1000+n, fmt.Sprint("waits-", n), 1, int64(n+1))
	}
	sale.Total, sale.Version = buyers+20, 2
	_, handed, err := lua.Adjust(f.ctx, f.rdb, f.saleKeys, saleID, plenty, sale)
	if err != nil || len(handed.Orders) != lua.MaxHandOver || !handed.More() {
		t.Fatalf("restock: %d, %t, %v", len(handed.Orders), handed.More(), err)
	}
	same(t, "a newcomer meanwhile", codes(f.mustAdmit(request(1, "dan"))), []lua.AdmitCode{lua.AdmitSoldOut})
	rest := f.handOver()
	if len(rest.Orders) != 50 || rest.More() {
		t.Fatalf("the rest: %d, %t", len(rest.Orders), rest.More())
	}
	for n, order := range append(handed.Orders, rest.Orders...) {
		same(t, "in turn", order, orderID(1000+n))
	}
	same(t, "a newcomer then", codes(f.mustAdmit(request(1, "dan"))), []lua.AdmitCode{lua.AdmitAccepted})
	f.do("DEL", f.saleKeys.Trusted)
	sale.Total, sale.Version = sale.Total+1, 3
	same(t, "restock of what is not verified", f.mustAdjust(sale), lua.AdjustAdjusted)
}

// The backlog bounds what is handed over, too.
func TestAFullBacklogHandsNothingOver(t *testing.T) {
	f := newFixture(t)
	f.soldOut(2)
	f.joins(11, "ann", 1, 1)
	f.joins(12, "bob", 1, 2)
	items := []lua.ReleaseItem{{UserID: "first-1", OrderID: orderID(1)}, {UserID: "first-2", OrderID: orderID(2)}}
	_, handed, err := lua.Release(f.ctx, f.rdb, f.saleKeys, saleID, 3, items)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "room for one", handed, lua.HandedOver{Orders: []string{orderID(11)}})
	same(t, "room again", f.handOver(), lua.HandedOver{Orders: []string{orderID(12)}})
}

// A buyer whose entry or slot can't be right is taken off the waitlist and reported; the others are served.
func TestAnInvalidEntryIsDropped(t *testing.T) {
	f := newFixture(t)
	f.soldOut(1)
	for i, user := range []string{"ann", "bob", "cy", "dan"} {
		f.joins(11+i, user, 1, int64(i+1))
	}
	f.do("HSET", f.saleKeys.Waiting, "ann", "what no script writes")
	f.do("HDEL", f.saleKeys.Waiting, "bob")
	f.do("HSET", f.saleKeys.Buyers, "cy", slotText(slotOf(request(30, "cy"), 1, 1)))
	if _, err := lua.Join(f.ctx, f.rdb, f.saleKeys, request(20, "ann")); !redis.HasErrorPrefix(err, "BADENTRY") {
		t.Errorf("join of ann: got %v", err)
	}
	same(t, "handed over", f.giveBack("first-1", 1), lua.HandedOver{
		Orders:  []string{orderID(14)},
		Dropped: []string{"ann", "bob", "cy"},
	})
	same(t, "waiting", f.state().Sale["waiting"], "0")
	same(t, "entries", len(f.hash(f.saleKeys.Waiting)), 0)
}

// A lost accept of a buyer who waits goes before the waitlist, and ends the entry.
func TestALostAcceptGoesBeforeTheList(t *testing.T) {
	f := newFixture(t)
	f.soldOut(3)
	f.joins(11, "ann", 2, 1)
	f.joins(12, "bob", 1, 2)
	f.giveBack("first-1", 1)
	reply, err := lua.Resubmit(f.ctx, f.rdb, f.saleKeys, saleID, []lua.AdmitRequest{request(12, "bob")})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "resubmit", codes(reply), []lua.AdmitCode{lua.AdmitAccepted})
	s := f.state()
	same(t, "waitlist", s.Waitlist, []string{"ann"})
	same(t, "entries", len(s.Waiting), 1)
	same(t, "waiting", s.Sale["waiting"], "1")
}

func TestInstallReplacesTheWaitlist(t *testing.T) {
	f := newFixture(t)
	sale := f.soldOut(1)
	f.joins(11, "ann", 1, 1)
	keys := f.installKeys()
	entry := lua.WaitlistEntry{
		OrderID: orderID(21), Quantity: 2, Number: 5, JoinedMS: 77, Ticket: 8, KeyHash: "k",
		PayloadHash: "p",
	}
	f.do("ZADD", keys.StagedWaitlist, 8, "bob")
	f.do("HSET", keys.StagedWaiting, "bob", entry.String())
	f.do("PEXPIRE", keys.StagedWaitlist, 60_000)
	f.do("PEXPIRE", keys.StagedWaiting, 60_000)
	f.step(lua.BeginVerify, "one", lua.Verifying)
	sale.Stock = 1
	install := func(entries int) lua.InstallCode {
		got, err := lua.Install(f.ctx, f.rdb, keys, "one", lua.InstallState{
			Fields:   sale,
			Counters: lua.Counters{Accepted: 1, Tickets: 9}, Staged: lua.Staged{Entries: entries},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	f.unchanged("other entries", func() {
		same(t, "none", install(0), lua.InstallIncomplete)
		same(t, "two", install(2), lua.InstallIncomplete)
	})
	same(t, "install", install(1), lua.InstallInstalled)
	for _, key := range []string{f.saleKeys.Waitlist, f.saleKeys.Waiting} {
		same(t, "time to live", f.do("PTTL", key), any(int64(-1)))
	}
	want := saleHash(sale, 1, 0)
	want["tickets"], want["waiting"] = "9", "1"
	s := f.state()
	same(t, "sale", s.Sale, want)
	same(t, "waitlist", s.Waitlist, []string{"bob"})
	got, err := lua.ParseWaitlistEntry(s.Waiting["bob"])
	if err != nil || got != entry {
		t.Errorf("bob waits for %+v, %v", got, err)
	}
	f.trust()
	same(t, "the next ticket", f.joins(22, "cy", 1, 2).Ticket, int64(10))
}

func TestWaitlistKeysOfAnotherTypeChangeNothing(t *testing.T) {
	f := newFixture(t)
	f.soldOut(2)
	f.joins(11, "ann", 1, 1)
	for _, key := range []string{f.saleKeys.Sale, f.saleKeys.Buyers, f.saleKeys.Waiting} {
		f.spoilt(key, func() error { _, err := lua.Join(f.ctx, f.rdb, f.saleKeys, request(12, "bob")); return err })
		f.spoilt(key, func() error {
			_, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
				lua.ReleaseItem{UserID: "ann", OrderID: orderID(11)})
			return err
		})
		f.spoilt(key, func() error {
			_, err := release(f, "first-1", orderID(1))
			return err
		})
	}
}

func TestJoinAndLeaveRefuseBadArguments(t *testing.T) {
	f := newFixture(t)
	f.soldOut(1)
	f.joins(11, "ann", 1, 1)
	five, six := []string{f.saleKeys.Sale, "b", "c", "d", "e"}, []string{f.saleKeys.Sale, "b", "c", "d", "e", "f"}
	f.unchanged("bad arguments", func() {
		for _, args := range [][]any{
			{},
			{orderID(1), 1, "ann", 1, "-"},
			{orderID(1), 1, "ann", 0, "-", "-"},
			{orderID(1), 1, "ann", "x", "-", "-"},
			{orderID(1), 1, "ann", "1.5", "-", "-"},
		} {
			f.badCall("join.lua", five, args...)
		}
		for _, args := range [][]any{
			{},
			{saleID, 1, "ann"},
			{saleID, 0, "ann", orderID(1)},
			{saleID, "x", "ann", orderID(1)},
		} {
			f.badCall("leave.lua", six, args...)
		}
		if _, err := lua.Join(f.ctx, f.rdb, f.saleKeys, lua.AdmitRequest{
			OrderID: "a b", Number: 1, UserID: "u",
			Quantity: 1,
		}); err == nil {
			t.Error("an order id with a space is accepted")
		}
		if _, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
			lua.ReleaseItem{UserID: "", OrderID: orderID(1)}); err == nil {
			t.Error("no user is accepted")
		}
	})
	f.do("HSET", f.saleKeys.Sale, "stock", "x")
	f.unchanged("a sale without a stock", func() {
		if _, err := lua.Join(f.ctx, f.rdb, f.saleKeys, request(12, "bob")); !redis.HasErrorPrefix(err, "BADSALE") {
			t.Errorf("join: got %v", err)
		}
		if _, _, _, err := lua.Leave(f.ctx, f.rdb, f.saleKeys, saleID, plenty,
			lua.ReleaseItem{UserID: "ann", OrderID: orderID(11)}); !redis.HasErrorPrefix(err, "BADSALE") {
			t.Errorf("leave: got %v", err)
		}
	})
}
