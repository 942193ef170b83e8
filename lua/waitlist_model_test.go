package lua_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"sluice/lua"
)

// The waitlist's part of the model, and the steps that draw from it.

// queue are the users who wait, those with the lowest tickets first.
func (m *model) queue() []string {
	return slices.SortedFunc(maps.Keys(m.waiting), func(a, b string) int {
		return int(m.waiting[a].Ticket - m.waiting[b].Ticket)
	})
}

func (m *model) join(nowMS int64, r lua.AdmitRequest) lua.JoinReply {
	if !m.loaded {
		return lua.JoinReply{Code: lua.JoinNotLoaded}
	}
	reply := lua.JoinReply{OpensMS: m.sale.OpensMS, MaxQuantity: m.sale.MaxQuantity}
	for _, earlier := range m.ended[r.UserID] {
		if r.KeyHash != "" && earlier.KeyHash == r.KeyHash {
			reply.Code, reply.Slot = lua.JoinEnded, earlier
			if earlier.Quantity != r.Quantity {
				reply.Code = lua.JoinKeyReused
			}
			return reply
		}
	}
	if slot, ordered := m.slots[r.UserID]; ordered {
		reply.Code, reply.Slot = lua.JoinAlreadyOrdered, slot
		if r.KeyHash != "" && slot.KeyHash == r.KeyHash && slot.Quantity != r.Quantity {
			reply.Code = lua.JoinKeyReused
		}
		return reply
	}
	entry, waits := m.waiting[r.UserID]
	if !waits {
		if reply.Code = m.joinRefusal(nowMS, r); reply.Code != "" {
			return reply
		}
		m.tickets++
		entry = lua.WaitlistEntry{
			OrderID: r.OrderID, Quantity: r.Quantity, Number: r.Number, JoinedMS: nowMS, Ticket: m.tickets,
			KeyHash: r.KeyHash, PayloadHash: r.PayloadHash,
		}
		m.waiting[r.UserID] = entry
	}
	reply.Entry, reply.Position = entry, int64(slices.Index(m.queue(), r.UserID)+1)
	switch {
	case entry.Quantity == r.Quantity:
		reply.Code = lua.JoinJoined
	case entry.KeyHash != "" && entry.KeyHash == r.KeyHash:
		reply.Code = lua.JoinKeyReused
	default:
		reply.Code = lua.JoinAlreadyWaiting
	}
	return reply
}

func (m *model) joinRefusal(nowMS int64, r lua.AdmitRequest) lua.JoinCode {
	switch {
	case m.sale.Waitlist == 0:
		return lua.JoinNoWaitlist
	case m.sale.State == "closed" || nowMS >= m.sale.ClosesMS:
		return lua.JoinClosed
	case m.sale.State == "paused":
		return lua.JoinPaused
	case nowMS < m.sale.OpensMS:
		return lua.JoinNotOpen
	case r.Quantity > m.sale.MaxQuantity || int64(r.Quantity) > m.sale.Total:
		return lua.JoinOverLimit
	case len(m.waiting) == 0 && int64(r.Quantity) <= m.sale.Stock:
		return lua.JoinAvailable
	case int64(len(m.waiting)) >= m.sale.Waitlist:
		return lua.JoinFull
	default:
		return ""
	}
}

func (m *model) leave(user, orderID string) (lua.LeaveCode, int64) {
	if m.slots[user].OrderID == orderID {
		return lua.LeaveOrdered, 0
	}
	m.tickets++
	if m.waiting[user].OrderID != orderID {
		return lua.LeaveAbsent, m.tickets
	}
	delete(m.waiting, user)
	return lua.LeaveLeft, m.tickets
}

// handOver serves the waitlist, strictly in turn, and returns the orders that it made.
func (m *model) handOver(nowMS, maxEvents int64) []string {
	var orders []string
	for _, user := range m.queue() {
		p := m.waiting[user]
		if int64(p.Quantity) > m.sale.Stock || int64(len(m.events)) >= maxEvents {
			break
		}
		delete(m.waiting, user)
		if p.Ticket < m.served {
			m.unfair = fmt.Sprintf("ticket %d was served after %d", p.Ticket, m.served)
		}
		m.served = p.Ticket
		m.sale.Stock -= int64(p.Quantity)
		m.accepted++
		r := lua.AdmitRequest{
			OrderID: p.OrderID, Number: p.Number, UserID: user, Quantity: p.Quantity, KeyHash: p.KeyHash,
			PayloadHash: p.PayloadHash,
		}
		slot := slotOf(r, nowMS, m.accepted)
		m.slots[user] = slot
		m.events = append(m.events, event{fields: handedOver(r, nowMS, m.accepted, p.Ticket)})
		m.record(r, lua.AdmitOutcome{Code: lua.AdmitAccepted, Slot: slot})
		orders = append(orders, p.OrderID)
	}
	return orders
}

// timed is what a call handed over, and the server's time around it.
type timed struct {
	lua.HandedOver
	before, after int64
}

func (m *machine) around(call func() lua.HandedOver) timed {
	before := m.nowMS()
	handed := call()
	return timed{handed, before, m.nowMS()}
}

// follow compares what a call handed over with the model's queue. Only where the window opened or closed during the
// call does the server decide whether the sale was open; which buyers are served, and in which turn, the model always
// knows.
func (m *machine) follow(t *rapid.T, h timed) {
	same(t, "taken off the list", len(h.Dropped), 0)
	s := m.model.sale
	shut := s.State != "active" || h.after < s.OpensMS || h.before >= s.ClosesMS
	open := s.State == "active" && h.before >= s.OpensMS && h.after < s.ClosesMS
	if !shut && !open {
		open = len(h.Orders) > 0
	}
	var want []string
	if open {
		want = m.model.handOver(m.acceptedMS(h.Orders), m.maxEvents)
	}
	same(t, "handed over", h.Orders, want)
}

// acceptedMS is when the first of some orders was made: only the server knows.
func (m *machine) acceptedMS(orders []string) int64 {
	if len(orders) == 0 {
		return 0
	}
	for _, text := range m.hash(m.saleKeys.Buyers) {
		if slot, err := lua.ParseSlot(text); err == nil && slot.OrderID == orders[0] {
			return slot.AcceptedMS
		}
	}
	return 0
}

func (m *machine) stepJoin(t *rapid.T) {
	r := request(0, users.Draw(t, "user"))
	if len(m.joined) > 0 && rapid.IntRange(0, 3).Draw(t, "retry") == 0 {
		r = m.joined[rapid.IntRange(0, len(m.joined)-1).Draw(t, "which")]
	} else {
		r.OrderID, r.Number = orderID(1_000_000+len(m.joined)), rapid.Int64Range(1, 1<<63-1).Draw(t, "number")
		r.Quantity = rapid.IntRange(1, 4).Draw(t, "quantity")
		r.KeyHash, r.PayloadHash = keyHashes.Draw(t, "key"), payloads.Draw(t, "payload")
		m.joined = append(m.joined, r)
	}
	// A window whose edge lies in the call itself is decided by the server.
	for range m.times(t) {
		before := m.nowMS()
		got, err := lua.Join(m.ctx, m.rdb, m.saleKeys, r)
		if err != nil {
			t.Fatal(err)
		}
		at := before
		switch after := m.nowMS(); {
		case got.Code == lua.JoinJoined:
			at = got.Entry.JoinedMS
			if _, waits := m.model.waiting[r.UserID]; !waits && (at < before || at > after) {
				t.Fatalf("joined at %d, between %d and %d", at, before, after)
			}
		case before < m.model.sale.OpensMS && got.Code != lua.JoinNotOpen, before < m.model.sale.ClosesMS &&
			got.Code == lua.JoinClosed:
			at = after
		}
		same(t, "join", got, m.model.join(at, r))
	}
}

func (m *machine) stepLeave(t *rapid.T) {
	user := users.Draw(t, "user")
	order := m.model.waiting[user].OrderID
	if order == "" || rapid.IntRange(0, 3).Draw(t, "other") == 0 {
		order = orderID(1_000_000 + rapid.IntRange(0, len(m.joined)).Draw(t, "which"))
	}
	m.maxEvents = backlogs.Draw(t, "max events")
	for range m.times(t) {
		var code lua.LeaveCode
		var ticket int64
		var err error
		handed := m.around(func() (handed lua.HandedOver) {
			code, ticket, handed, err = lua.Leave(m.ctx, m.rdb, m.saleKeys, saleID, m.maxEvents,
				lua.ReleaseItem{UserID: user, OrderID: order})
			return handed
		})
		if !m.model.loaded {
			if !errors.Is(err, lua.ErrNotLoaded) {
				t.Fatalf("leave without the sale: got %s, %v", code, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantCode, wantTicket := m.model.leave(user, order)
		same(t, "leave", code, wantCode)
		same(t, "ticket", ticket, wantTicket)
		if code != lua.LeaveOrdered {
			m.follow(t, handed)
		}
	}
}

func (m *machine) stepHandOver(t *rapid.T) {
	m.maxEvents = backlogs.Draw(t, "max events")
	for range m.times(t) {
		var err error
		handed := m.around(func() (handed lua.HandedOver) {
			handed, err = lua.HandOver(m.ctx, m.rdb, m.saleKeys, saleID, m.maxEvents)
			return handed
		})
		if !m.model.loaded {
			if !errors.Is(err, lua.ErrNotLoaded) {
				t.Fatalf("hand over without the sale: got %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		m.follow(t, handed)
	}
}

// stepResubmit resubmits an accept that Redis may have lost: of a buyer who waits, under the order of that entry, or of
// any buyer. It goes before the waitlist, and takes its buyer off it.
func (m *machine) stepResubmit(t *rapid.T) {
	if !m.model.loaded {
		t.Skip("no sale")
	}
	user := users.Draw(t, "user")
	r := request(2_000_000+m.steps, user)
	if entry, waits := m.model.waiting[user]; waits && rapid.Bool().Draw(t, "own") {
		r.OrderID, r.Number, r.Quantity = entry.OrderID, entry.Number, entry.Quantity
		r.KeyHash, r.PayloadHash = entry.KeyHash, entry.PayloadHash
	}
	for range m.times(t) {
		got, err := lua.Resubmit(m.ctx, m.rdb, m.saleKeys, saleID, []lua.AdmitRequest{r})
		if err != nil {
			t.Fatal(err)
		}
		want := m.model.resubmit(got.NowMS, r)
		same(t, "resubmit", got.Outcomes[0], want)
		m.model.record(r, want)
	}
}

func (m *model) resubmit(nowMS int64, r lua.AdmitRequest) lua.AdmitOutcome {
	if slot, ordered := m.slots[r.UserID]; ordered {
		return lua.AdmitOutcome{Code: repeated(slot, r), Slot: slot}
	}
	if int64(r.Quantity) > m.sale.Stock {
		return lua.AdmitOutcome{Code: lua.AdmitSoldOut}
	}
	m.sale.Stock -= int64(r.Quantity)
	m.accepted++
	slot := slotOf(r, nowMS, m.accepted)
	m.slots[r.UserID] = slot
	m.events = append(m.events, event{fields: eventOf(r, nowMS, m.accepted)})
	delete(m.waiting, r.UserID)
	return lua.AdmitOutcome{Code: lua.AdmitAccepted, Slot: slot}
}
