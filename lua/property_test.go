package lua_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sluice/internal/testkit"
	"sluice/lua"
	"sluice/pipeline"
)

// TestScriptsAgainstModel runs random interleavings of everything that API processes, workers and operators do to one
// sale. After each step the whole state of Redis must be the model's, and the invariants must hold against a ledger of
// what was answered. Any step may be sent twice, as by a client that lost a reply.
//
// A run is 100 sequences of some 30 steps, most of them batches; -rapid.checks and -rapid.steps make it longer. A
// failure prints the seed that repeats it.
func TestScriptsAgainstModel(t *testing.T) {
	t.Parallel()
	rdb := testkit.Client(t, testkit.PrivateRedis(t, "appendonly no").URL()) // thousands of steps need no disk
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		layout := pipeline.Keys{Prefix: "model"}
		m := &machine{
			fixture: &fixture{tester: rt, ctx: ctx, rdb: rdb, saleKeys: saleKeysOf(layout), layout: layout},
			model:   newModel(),
		}
		m.do("FLUSHALL")
		m.trust()
		m.do("XGROUP", "CREATE", m.saleKeys.Orders, group, "0", "MKSTREAM")
		if rapid.IntRange(0, 7).Draw(rt, "loaded late") > 0 {
			m.stepLoad(rt)
		}
		rt.Repeat(m.actions())
		steps += m.steps
	})
	t.Logf("%d steps", steps)
}

// machine draws steps, takes them in Redis and in the model, and compares.
type machine struct {
	*fixture
	model *model
	steps int

	sent     []lua.AdmitRequest // every request so far, to be retried
	released []lua.ReleaseItem  // every release so far, to be repeated
	settled  []lua.SettleItem   // likewise
	version  int64              // the newest drawn
	joined   []lua.AdmitRequest // every request to wait so far
}

var (
	users     = rapid.SampledFrom([]string{"ann", "bob", "cy", "dan", "eve", "fay"})
	keyHashes = rapid.SampledFrom([]string{"", "k1", "k2"})
	payloads  = rapid.SampledFrom([]string{"p1", "p2"})
	consumers = rapid.SampledFrom([]string{"w1", "w2"})
	backlogs  = rapid.SampledFrom([]int64{plenty, plenty, 1, 3, 8})
	states    = rapid.SampledFrom([]string{"active", "active", "active", "active", "paused", "closed"})
)

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":         m.check,
		"admit":    m.stepAdmit,
		"admit 2":  m.stepAdmit, // named again: drawn more often
		"admit 3":  m.stepAdmit,
		"release":  m.stepRelease,
		"release2": m.stepRelease,
		"join":     m.stepJoin,
		"join 2":   m.stepJoin,
		"leave":    m.stepLeave,
		"hand":     m.stepHandOver,
		"again":    m.stepResubmit,
		"load":     m.stepLoad,
		"adjust":   m.stepAdjust,
		"deliver":  m.stepDeliver,
		"settle":   m.stepSettle,
		"reap":     m.stepReap,
		"forget":   func(*rapid.T) { m.do("SCRIPT", "FLUSH") },
	}
}

func (m *machine) check(t *rapid.T) {
	got, want := m.state(), m.model.state(m.layout.Prefix)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("state:\n got %+v\nwant %+v", got, want)
	}
	if what := m.model.broken(got); what != "" {
		t.Fatal(what)
	}
}

// times draws how often a step is sent: twice when its first reply is lost on the way.
func (m *machine) times(t *rapid.T) int {
	m.steps++
	return rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "times")
}

func (m *machine) stepAdmit(t *rapid.T) {
	reqs := make([]lua.AdmitRequest, rapid.IntRange(1, 6).Draw(t, "batch"))
	for i := range reqs {
		reqs[i] = m.drawRequest(t)
		m.sent = append(m.sent, reqs[i])
	}
	m.maxEvents = backlogs.Draw(t, "max events")
	for range m.times(t) {
		got := m.mustAdmit(reqs...)
		same(t, "admit", got, m.model.admit(got.NowMS, m.maxEvents, reqs)) // the server's time decides, in both
		for i, o := range got.Outcomes {
			m.model.record(reqs[i], o)
		}
	}
}

// drawRequest is a new request or, as often, the retry of an earlier one.
func (m *machine) drawRequest(t *rapid.T) lua.AdmitRequest {
	if len(m.sent) > 0 && rapid.Bool().Draw(t, "retry") {
		return m.sent[rapid.IntRange(0, len(m.sent)-1).Draw(t, "which")]
	}
	r := request(len(m.sent)+1, users.Draw(t, "user"))
	r.OrderID = orderID(len(m.sent)*10 + rapid.IntRange(1, 9).Draw(t, "order"))
	r.Number = rapid.Int64Range(1, 1<<63-1).Draw(t, "number")
	r.Quantity = rapid.IntRange(1, 4).Draw(t, "quantity")
	r.KeyHash, r.PayloadHash = keyHashes.Draw(t, "key"), payloads.Draw(t, "payload")
	if rapid.Bool().Draw(t, "traced") {
		r.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	}
	return r
}

func (m *machine) stepRelease(t *rapid.T) {
	items := make([]lua.ReleaseItem, rapid.IntRange(1, 4).Draw(t, "batch"))
	for i := range items {
		items[i] = m.drawRelease(t)
	}
	m.released = append(m.released, items...)
	m.maxEvents = backlogs.Draw(t, "max events")
	for range m.times(t) {
		var got []bool
		var err error
		handed := m.around(func() (handed lua.HandedOver) {
			got, handed, err = lua.Release(m.ctx, m.rdb, m.saleKeys, saleID, m.maxEvents, items)
			return handed
		})
		if !m.model.loaded {
			if !errors.Is(err, lua.ErrNotLoaded) {
				t.Fatalf("release without the sale: got %v, %v", got, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, "release", got, m.model.release(items))
		for i, given := range got {
			if given {
				m.model.giveBack(items[i])
			}
		}
		m.follow(t, handed)
	}
}

// drawRelease is an order that was sent once (live, refused or released long ago), or the repetition of a release, or
// an order under another buyer's name.
func (m *machine) drawRelease(t *rapid.T) lua.ReleaseItem {
	if len(m.released) > 0 && rapid.IntRange(0, 3).Draw(t, "repeat") == 0 {
		return m.released[rapid.IntRange(0, len(m.released)-1).Draw(t, "which")]
	}
	item := lua.ReleaseItem{
		UserID: users.Draw(t, "user"), OrderID: orderID(1), Withdrawn: rapid.IntRange(0, 5).Draw(t, "withdrawn") == 0,
	}
	if slot, held := m.model.slots[item.UserID]; held {
		item.OrderID = slot.OrderID
	}
	if len(m.sent) > 0 && rapid.IntRange(0, 3).Draw(t, "any") == 0 {
		item.OrderID = m.sent[rapid.IntRange(0, len(m.sent)-1).Draw(t, "which")].OrderID
	}
	return item
}

// drawSale is a definition with a window around the server's present: wide open, or with an edge within milliseconds.
func (m *machine) drawSale(t *rapid.T) lua.SaleFields {
	now := m.nowMS()
	s := lua.SaleFields{
		Total: rapid.Int64Range(0, 12).Draw(t, "total"), MaxQuantity: rapid.IntRange(1, 4).Draw(t, "limit"),
		State: states.Draw(t, "state"), OpensMS: now - 60_000, ClosesMS: now + 60_000,
		Waitlist: rapid.Int64Range(0, 4).Draw(t, "waitlist"), Version: m.version + rapid.Int64Range(-2, 2).Draw(t,
			"version step"),
	}
	s.Stock, s.Version = s.Total, max(s.Version, 1)
	m.version = max(m.version, s.Version)
	edge := rapid.Int64Range(-3, 3).Draw(t, "edge")
	switch rapid.IntRange(0, 5).Draw(t, "window") {
	case 0:
		s.OpensMS = now + edge
	case 1:
		s.ClosesMS = now + edge
	case 2:
		s.OpensMS, s.ClosesMS = now+edge, now+edge+1
	}
	return s
}

func (m *machine) stepLoad(t *rapid.T) {
	s := m.drawSale(t)
	for range m.times(t) {
		got, err := lua.Load(m.ctx, m.rdb, m.saleKeys.Sale, m.saleKeys.Trusted, s)
		if want := m.model.load(s); err != nil || got != want {
			t.Fatalf("load: got %q, %v, want %q", got, err, want)
		}
	}
}

func (m *machine) stepAdjust(t *rapid.T) {
	s := m.drawSale(t)
	m.maxEvents = backlogs.Draw(t, "max events")
	for range m.times(t) {
		var got lua.AdjustCode
		var err error
		handed := m.around(func() (handed lua.HandedOver) {
			got, handed, err = lua.Adjust(m.ctx, m.rdb, m.saleKeys, saleID, m.maxEvents, s)
			return handed
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "adjust", got, m.model.adjust(s))
		if got == lua.AdjustAdjusted {
			m.follow(t, handed)
		}
	}
}

func (m *machine) stepDeliver(t *rapid.T) {
	m.steps++
	consumer := consumers.Draw(t, "consumer")
	if last := len(m.model.events) - 1; last < 0 || m.model.events[last].consumer != "" {
		t.Skip("nothing is undelivered")
	}
	m.model.deliver(consumer, m.read(consumer, rapid.Int64Range(1, 5).Draw(t, "count")))
}

// stepSettle settles pending events, under locks that are ours, another's or gone, and things settled before.
func (m *machine) stepSettle(t *rapid.T) {
	var items []lua.SettleItem
	for i, e := range m.model.events {
		if e.consumer != "" && rapid.Bool().Draw(t, "settle") {
			items = append(items, m.drawLock(t, lua.SettleItem{EntryID: e.entryID}, i))
		}
	}
	if len(m.settled) > 0 && rapid.Bool().Draw(t, "again") {
		items = append(items, m.settled[rapid.IntRange(0, len(m.settled)-1).Draw(t, "which")])
	}
	if len(items) == 0 {
		t.Skip("nothing to settle")
	}
	m.settled = append(m.settled, items...)
	for range m.times(t) {
		same(t, "settle", m.mustSettle(items...), m.model.settle(items))
	}
}

func (m *machine) drawLock(t *rapid.T, item lua.SettleItem, n int) lua.SettleItem {
	holder := rapid.SampledFrom([]string{"", "token", "token2"}).Draw(t, "holder")
	if key := m.lockKey(n); holder != "" {
		m.do("SET", key, holder)
		m.model.others[key] = holder
		item.LockKey = key
	}
	return item
}

func (m *machine) stepReap(t *rapid.T) {
	consumer := consumers.Draw(t, "consumer")
	heartbeat := m.layout.Worker(partition, consumer)
	if rapid.Bool().Draw(t, "alive") {
		m.do("SET", heartbeat, "alive")
		m.model.others[heartbeat] = "alive"
	} else {
		m.do("DEL", heartbeat)
		delete(m.model.others, heartbeat)
	}
	for range m.times(t) {
		same(t, "reap", m.mustReap(consumer), m.model.reap(heartbeat, consumer))
	}
}
