package buyers

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	maxStrange   = 20 // kept in words
	shortSilence = 100 * time.Millisecond
)

// Fact is one order request and what came of it.
type Fact struct {
	Request
	Outcome Outcome
	Again   bool          // the request repeated one without an answer
	Order   string        // of a 202 or a 409 already-ordered
	Number  int64         // of a 202
	At      time.Duration // after the start, when the answer came
	Took    time.Duration // from the request to the answer
}

// Poison is a stream entry that was added by hand.
type Poison struct {
	Entry, Order string // an entry without an order has no order, an order that Redis itself accepted no entry
	Sort         string
	Lettered     bool // it must end as a dead letter; else it must change nothing
}

// Silence is a time without any 202.
type Silence struct{ From, To time.Duration }

// History is what the buyers and the payment provider were answered, in the order in which they were. It grows by
// some 100 bytes for a request.
type History struct {
	Began time.Time

	mu       sync.Mutex // protects the rest
	facts    []Fact
	tally    Tally
	accepted map[string]bool // orders that a 202 named
	poisons  []Poison
	silences []Silence
	lastAt   time.Duration // of a 202

	strange      []string // answers that nobody should get
	strangeCount int

	// from then on units may have come free, or buyers have left; zero: not yet known
	unchangedUntil time.Time
	entries        map[uint32]*entry   // in the waitlist, by buyer
	settled        map[string]*settled // by order
	payments       map[string]int      // answers to the provider, by outcome or code
	repeated       int                 // webhooks that repeated one under the same webhook-id
	otherAnswers   []string            // orders of which a repeated webhook was answered differently
	joined, left   int                 // of the waitlist
}

// Tally is what a history counts.
type Tally struct {
	Requests  int
	Repeated  int // because there was no answer, or one that asked for patience
	Abandoned int // given up by the client, and not answered
	Orders    int // that a 202 named, each counted once
	Replays   int // 202s that named an order which the buyer knew already
	Outcomes  [outcomes]int
}

// NewHistory makes an empty history that begins now.
func NewHistory() *History {
	return &History{
		Began: time.Now(), accepted: map[string]bool{}, entries: map[uint32]*entry{}, settled: map[string]*settled{},
		payments: map[string]int{},
	}
}

// Note adds a fact, with the time.
func (h *History) Note(f Fact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.At = time.Since(h.Began)
	h.facts = append(h.facts, f)
	t := &h.tally
	t.Requests++
	t.Outcomes[f.Outcome]++
	if f.Again {
		t.Repeated++
	}
	switch {
	case f.Outcome == NoAnswer && f.Abandon:
		t.Abandoned++
	case f.Outcome == Accepted && h.accepted[f.Order]:
		t.Replays++
	case f.Outcome == Accepted:
		h.accepted[f.Order] = true
		t.Orders++
	}
	if f.Outcome != Accepted {
		return
	}
	if f.At-h.lastAt >= shortSilence {
		h.silences = append(h.silences, Silence{h.lastAt, f.At})
	}
	h.lastAt = f.At
}

// Tally returns what was counted so far.
func (h *History) Tally() Tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tally
}

// Facts are those so far.
func (h *History) Facts() []Fact {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts[:len(h.facts):len(h.facts)]
}

// Latencies of all answers.
func (h *History) Latencies() []time.Duration {
	var all []time.Duration
	for _, f := range h.Facts() {
		if f.Outcome.Definite() {
			all = append(all, f.Took)
		}
	}
	return all
}

// Silences are the times without any 202, of 100 ms or more.
func (h *History) Silences() []Silence {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.silences)
}

// Strangef notes an answer that nobody should get, or the lack of one.
func (h *History) Strangef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strangef(format, args...)
}

// strangef needs mu.
func (h *History) strangef(format string, args ...any) {
	if h.strangeCount++; len(h.strange) < maxStrange {
		h.strange = append(h.strange,
			fmt.Sprintf("%.1fs: ", time.Since(h.Began).Seconds())+fmt.Sprintf(format, args...))
	}
}

// Strange are the first answers that nobody should get, in words.
func (h *History) Strange() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.strange)
}

// NotePoison adds a poison entry.
func (h *History) NotePoison(p Poison) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.poisons = append(h.poisons, p)
}

// Poisons counts the poison entries.
func (h *History) Poisons() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.poisons)
}

// Open lists what buyers still don't know: one request for each key without an answer.
func (h *History) Open() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var requests []Request
	for buyer, m := range h.recall() {
		for _, key := range m.openKeys {
			requests = append(requests, Request{Sale: m.sale, Buyer: buyer, Key: key, Quantity: m.quantity})
		}
	}
	return requests
}

// Owners says which buyer a 202 named each order to, but for those of the waitlist.
func (h *History) Owners() map[string]uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := map[string]uint32{}
	for buyer, m := range h.recall() {
		for _, p := range m.accepted {
			if e := h.entries[buyer]; e == nil || e.order != p.order {
				owners[p.order] = buyer
			}
		}
	}
	return owners
}

// Losers are those who got sold-out and have nothing, in the order of their numbers.
func (h *History) Losers() []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var losers []uint32
	for buyer, m := range h.recall() {
		if len(m.soldOut) > 0 && len(m.accepted) == 0 && len(m.openKeys) == 0 {
			losers = append(losers, buyer)
		}
	}
	slices.Sort(losers)
	return losers
}

// promise is an order that an answer named.
type promise struct {
	order  string
	number int64 // 0 where only a 409 named it
}

// memory is all that one buyer remembers.
type memory struct {
	sale     string
	quantity uint8
	accepted []promise       // named by a 202, each once
	named    []promise       // named by a 409 already-ordered, each once
	soldOut  []time.Duration // when the answer came, after the start
	// unanswered counts requests; openKeys are those of which none was answered since.
	unanswered int
	openKeys   []int16

	keys         []int16 // of all requests, each once
	acceptedKeys []int16 // answered by a 202
	namedKeys    []int16 // answered by a 409 already-ordered
	numbersOf    map[string][2]int64
}

// promises are all orders that the buyer knows of, each once: those of a 202 first.
func (m *memory) promises() []promise {
	all := slices.Clone(m.accepted)
	for _, p := range m.named {
		if !slices.ContainsFunc(all, func(q promise) bool { return q.order == p.order }) {
			all = append(all, p)
		}
	}
	return all
}

// recall puts together what each buyer remembers. It needs mu.
func (h *History) recall() map[uint32]*memory {
	all := map[uint32]*memory{}
	for _, f := range h.facts {
		m := all[f.Buyer]
		if m == nil {
			m = &memory{sale: f.Sale, quantity: f.Quantity}
			all[f.Buyer] = m
		}
		m.add(f)
	}
	return all
}

func (m *memory) add(f Fact) {
	addOnce(&m.keys, f.Key)
	if !f.Outcome.Definite() {
		m.unanswered++
		addOnce(&m.openKeys, f.Key)
		return
	}
	m.openKeys = slices.DeleteFunc(m.openKeys, func(key int16) bool { return key == f.Key })
	switch f.Outcome {
	case Accepted:
		addOnce(&m.acceptedKeys, f.Key)
		m.promise(f)
	case AlreadyOrdered:
		addOnce(&m.namedKeys, f.Key)
		addOnce(&m.named, promise{order: f.Order})
	case SoldOut:
		m.soldOut = append(m.soldOut, f.At)
	case NoAnswer, NotOpen, Closed, Unexpected:
	}
}

func (m *memory) promise(f Fact) {
	for _, known := range m.accepted {
		if known.order != f.Order {
			continue
		}
		if known.number != f.Number {
			if m.numbersOf == nil {
				m.numbersOf = map[string][2]int64{}
			}
			m.numbersOf[f.Order] = [2]int64{known.number, f.Number}
		}
		return
	}
	m.accepted = append(m.accepted, promise{f.Order, f.Number})
}

func addOnce[T comparable](list *[]T, one T) {
	if !slices.Contains(*list, one) {
		*list = append(*list, one)
	}
}
