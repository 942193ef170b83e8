package lua_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/lua"
)

// model is what Redis should have, as plain Go. Sales, slots and events are written from the rules in the scripts'
// headers; the ledger beside them is kept from outcomes alone, and is what the invariants are checked against.
type model struct {
	loaded             bool
	sale               lua.SaleFields
	accepted, released int64
	withdrawn          int64 // units
	slots              map[string]lua.Slot
	ended              map[string][]lua.Slot // of orders that had a key, by user, the latest first
	events             []event               // in the stream, in order
	consumers          map[string]bool       // of the group
	others             map[string]string     // locks and heartbeats

	ledger map[accept]*account

	waiting map[string]lua.WaitlistEntry // waitlist entries by user
	tickets int64
	served  int64  // the ticket of the last buyer who was handed an order
	unfair  string // which ticket overtook which
}

// event is a stream entry: not delivered yet, or pending at a consumer.
type event struct {
	fields   map[string]string
	entryID  string // known once it is delivered
	consumer string // empty while undelivered
}

// accept names one accept: an order id may be accepted again after a release, under another sequence.
type accept struct {
	orderID  string
	sequence int64
}

// account is what the ledger knows about an accept.
type account struct {
	user     string
	units    int
	releases int // how many times it was reported given back
}

func newModel() *model {
	return &model{
		slots: map[string]lua.Slot{}, ended: map[string][]lua.Slot{}, consumers: map[string]bool{},
		others: map[string]string{},
		ledger: map[accept]*account{}, waiting: map[string]lua.WaitlistEntry{},
	}
}

func (m *model) admit(nowMS, maxEvents int64, reqs []lua.AdmitRequest) lua.AdmitReply {
	reply := lua.AdmitReply{NowMS: nowMS}
	for _, r := range reqs {
		reply.Outcomes = append(reply.Outcomes, m.admitOne(nowMS, maxEvents, r))
	}
	if m.loaded {
		reply.Stock, reply.OpensMS, reply.ClosesMS = m.sale.Stock, m.sale.OpensMS, m.sale.ClosesMS
		reply.MaxQuantity = m.sale.MaxQuantity
	}
	return reply
}

func (m *model) admitOne(nowMS, maxEvents int64, r lua.AdmitRequest) lua.AdmitOutcome {
	if !m.loaded {
		return lua.AdmitOutcome{Code: lua.AdmitNotLoaded}
	}
	if slot, ordered := m.slotUnder(r); ordered {
		code := repeated(slot, r)
		if code == lua.AdmitReplayed && m.slots[r.UserID] != slot {
			code = lua.AdmitEnded
		}
		return lua.AdmitOutcome{Code: code, Slot: slot}
	}
	if code := m.refusal(nowMS, maxEvents, r); code != "" {
		return lua.AdmitOutcome{Code: code}
	}
	m.sale.Stock -= int64(r.Quantity)
	m.accepted++
	slot := slotOf(r, nowMS, m.accepted)
	m.slots[r.UserID] = slot
	m.events = append(m.events, event{fields: eventOf(r, nowMS, m.accepted)})
	return lua.AdmitOutcome{Code: lua.AdmitAccepted, Slot: slot}
}

// slotUnder is the slot that answers a request: one under the same key, in use or not, before one in use.
func (m *model) slotUnder(r lua.AdmitRequest) (lua.Slot, bool) {
	slot, ordered := m.slots[r.UserID]
	if r.KeyHash == "" || ordered && slot.KeyHash == r.KeyHash {
		return slot, ordered
	}
	for _, earlier := range m.ended[r.UserID] {
		if earlier.KeyHash == r.KeyHash {
			return earlier, true
		}
	}
	return slot, ordered
}

func repeated(slot lua.Slot, r lua.AdmitRequest) lua.AdmitCode {
	switch {
	case slot.OrderID == r.OrderID:
		return lua.AdmitAccepted
	case slot.KeyHash == "" || slot.KeyHash != r.KeyHash:
		return lua.AdmitAlreadyOrdered
	case slot.PayloadHash == r.PayloadHash:
		return lua.AdmitReplayed
	default:
		return lua.AdmitKeyReused
	}
}

func (m *model) refusal(nowMS, maxEvents int64, r lua.AdmitRequest) lua.AdmitCode {
	switch {
	case m.sale.State == "closed" || nowMS >= m.sale.ClosesMS:
		return lua.AdmitClosed
	case m.sale.State == "paused":
		return lua.AdmitPaused
	case nowMS < m.sale.OpensMS:
		return lua.AdmitNotOpen
	case r.Quantity > m.sale.MaxQuantity:
		return lua.AdmitOverLimit
	case int64(r.Quantity) > m.sale.Stock || len(m.waiting) > 0:
		return lua.AdmitSoldOut
	case int64(len(m.events)) >= maxEvents:
		return lua.AdmitBacklogFull
	default:
		return ""
	}
}

func (m *model) release(items []lua.ReleaseItem) []bool {
	given := make([]bool, len(items))
	for i, item := range items {
		slot, ordered := m.slots[item.UserID]
		if !ordered || slot.OrderID != item.OrderID {
			continue
		}
		delete(m.slots, item.UserID)
		if item.Withdrawn {
			m.withdrawn += int64(slot.Quantity)
		} else {
			m.sale.Stock += int64(slot.Quantity)
		}
		m.released++
		given[i] = true
		if slot.KeyHash != "" {
			all := append([]lua.Slot{slot}, slices.DeleteFunc(slices.Clone(m.ended[item.UserID]), func(s lua.Slot) bool {
				return s.OrderID == slot.OrderID
			})...)
			m.ended[item.UserID] = all[:min(len(all), lua.MaxEndedSlots)]
		}
	}
	return given
}

func (m *model) load(s lua.SaleFields) lua.LoadCode {
	if m.loaded {
		return lua.LoadPresent
	}
	m.loaded, m.sale, m.accepted, m.released, m.withdrawn = true, s, 0, 0, 0
	return lua.LoadLoaded
}

func (m *model) adjust(s lua.SaleFields) lua.AdjustCode {
	switch {
	case !m.loaded:
		return lua.AdjustAbsent
	case s.Version <= m.sale.Version:
		return lua.AdjustCurrent
	case m.sale.Stock+s.Total-m.sale.Total < 0:
		return lua.AdjustBelowTaken
	}
	s.Stock = m.sale.Stock + s.Total - m.sale.Total
	m.sale = s
	return lua.AdjustAdjusted
}

// deliver hands the first n undelivered events to a consumer.
func (m *model) deliver(consumer string, entryIDs []string) {
	m.consumers[consumer] = true
	for i := range m.events {
		if m.events[i].consumer == "" && len(entryIDs) > 0 {
			m.events[i].consumer, m.events[i].entryID = consumer, entryIDs[0]
			entryIDs = entryIDs[1:]
		}
	}
}

func (m *model) settle(items []lua.SettleItem) (acked int64) {
	for _, item := range items {
		settled := func(e event) bool { return e.entryID == item.EntryID }
		if slices.ContainsFunc(m.events, settled) {
			m.events = slices.DeleteFunc(m.events, settled)
			acked++
		}
		if m.others[item.LockKey] == "token" {
			delete(m.others, item.LockKey)
		}
	}
	return acked
}

func (m *model) reap(heartbeat, consumer string) lua.ReapCode {
	switch {
	case m.others[heartbeat] != "":
		return lua.ReapAlive
	case slices.ContainsFunc(m.events, func(e event) bool { return e.consumer == consumer }):
		return lua.ReapPending
	case !m.consumers[consumer]:
		return lua.ReapAbsent
	}
	delete(m.consumers, consumer)
	return lua.ReapRemoved
}

// state is the model in the form in which fixture.state reads Redis.
func (m *model) state(prefix string) state {
	s := state{
		Buyers: map[string]string{}, Sale: map[string]string{},
		Consumers: slices.Sorted(maps.Keys(m.consumers)), Others: map[string]string{},
	}
	for key, value := range m.others {
		s.Others[strings.TrimPrefix(key, prefix)] = value
	}
	if m.loaded {
		s.Sale = saleHash(m.sale, m.accepted, m.released)
		s.Sale["tickets"], s.Sale["waiting"] = fmt.Sprint(m.tickets), fmt.Sprint(len(m.waiting))
	}
	if len(m.waiting) > 0 {
		s.Waitlist, s.Waiting = m.queue(), map[string]string{}
	}
	for user, entry := range m.waiting {
		s.Waiting[user] = entry.String()
	}
	for user, slot := range m.slots {
		s.Buyers[user] = slotText(slot)
	}
	for user, slots := range m.ended {
		var texts []string
		for _, slot := range slots {
			texts = append(texts, slotText(slot))
		}
		if s.Ended == nil {
			s.Ended = map[string]string{}
		}
		s.Ended[user] = strings.Join(texts, lua.EndedSlotsSeparator)
	}
	for i, e := range m.events {
		s.Events = append(s.Events, e.fields)
		if e.consumer != "" {
			s.Pending = append(s.Pending, fmt.Sprint(i, " ", e.consumer))
		}
	}
	return s
}

// record enters what was answered into the ledger. An accept that the ledger has is a retry's.
func (m *model) record(r lua.AdmitRequest, o lua.AdmitOutcome) {
	if o.Code != lua.AdmitAccepted {
		return
	}
	key := accept{o.Slot.OrderID, o.Slot.Sequence}
	if m.ledger[key] == nil {
		m.ledger[key] = &account{user: r.UserID, units: o.Slot.Quantity}
	}
}

// giveBack enters a release that was reported as done; it belongs to the newest accept of that order.
func (m *model) giveBack(item lua.ReleaseItem) {
	newest := accept{orderID: item.OrderID}
	for key := range m.ledger {
		if key.orderID == item.OrderID && key.sequence > newest.sequence {
			newest = key
		}
	}
	if a := m.ledger[newest]; a != nil {
		a.releases++
	}
}

// broken names the first invariant (ARCHITECTURE.md numbers them) that is broken between the ledger and what Redis has,
// or "".
func (m *model) broken(got state) string {
	if !m.loaded {
		return ""
	}
	live := map[string]int{} // units by buyer
	units, released := int64(0), int64(0)
	for key, a := range m.ledger {
		switch {
		case a.releases > 1:
			return fmt.Sprintf("I7: order %v was given back %d times", key, a.releases)
		case a.releases == 1:
			released++
		case live[a.user] > 0:
			return fmt.Sprintf("I3: buyer %s has two live orders", a.user)
		default:
			live[a.user] = a.units
			units += int64(a.units)
		}
	}
	stock, total := number(got.Sale["stock"]), number(got.Sale["total"])
	switch {
	case units > total || stock < 0:
		return fmt.Sprintf("I1: %d units in live orders, stock %d, total %d", units, stock, total)
	case units+stock+m.withdrawn != total:
		return fmt.Sprintf("I2: %d units in live orders, stock %d and %d withdrawn are not the total, %d", units, stock,
			m.withdrawn, total)
	case number(got.Sale["accepted"]) != int64(len(m.ledger)):
		return fmt.Sprintf("I6: %s accepts counted, %d answered", got.Sale["accepted"], len(m.ledger))
	case number(got.Sale["released"]) != released:
		return fmt.Sprintf("I7: %s releases counted, %d answered", got.Sale["released"], released)
	}
	if m.unfair != "" {
		return m.unfair
	}
	for _, user := range got.Waitlist {
		if live[user] > 0 {
			return fmt.Sprintf("I3: buyer %s has a live order and waits", user)
		}
	}
	if buyers := slices.Sorted(maps.Keys(live)); !slices.Equal(slices.Sorted(maps.Keys(got.Buyers)), buyers) {
		return fmt.Sprintf("I3: slots of %v, live orders of %v", slices.Sorted(maps.Keys(got.Buyers)), buyers)
	}
	return ""
}

// number reads an integer of Redis; anything else is a number that breaks every sum.
func number(text string) int64 {
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil || fmt.Sprint(n) != text {
		return -1 << 62
	}
	return n
}
