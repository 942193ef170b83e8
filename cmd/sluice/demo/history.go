package demo

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxStrange bounds how many unexpected answers are kept in full.
const maxStrange = 10

// history is what the buyers remember. It is the demo's own witness: nothing in it comes from Redis, Postgres or a log.
type history struct {
	mu        sync.Mutex // protects everything
	buyers    []memory
	asked     int // requests sent
	repeated  int // requests sent again because there was no answer, or one that said "later"
	abandoned int // requests given up by the client, and never answered
	codes     map[string]int
	replays   int // 202s that named an order which the buyer knew already
	accepted  int // orders that a 202 named, each counted once
	latencies []time.Duration
	weak      int      // 202s that promised less than fsync
	strange   []string // answers that no buyer should get
	odd       int      // how many of those there were

	quietUntil   time.Time       // from then on units may have come free, or people have left; zero: not yet known
	ends         map[string]*end // by order
	payments     map[string]int  // answers to the provider, by outcome or code
	toldTwice    int             // webhooks that repeated one under the same webhook-id
	otherAnswers []string        // orders of which a repeated webhook was answered differently
	waiters      int             // who joined the waitlist
	leavers      int             // of them who left again
}

// memory is what one buyer remembers.
type memory struct {
	orders   []string // named by a 202, each once
	named    []string // named by a 409 already-ordered, each once
	soldOut  bool     // was told so
	openKeys []int    // of abandoned requests that have no answer yet
	stay     stay     // in the waitlist
}

func newHistory(buyers int) *history {
	return &history{buyers: make([]memory, buyers), codes: map[string]int{}, ends: map[string]*end{}, payments: map[string]int{}}
}

// sent counts a request, again says that it repeats one that got no answer.
func (h *history) sent(again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if again {
		h.repeated++
	}
}

// gaveUp notes that a client left before the answer: it does not know what it has.
func (h *history) gaveUp(a ask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned++
	m := &h.buyers[a.buyer]
	if !slices.Contains(m.openKeys, a.key) {
		m.openKeys = append(m.openKeys, a.key)
	}
}

// never notes that an ask got no answer at all, however often it was repeated.
func (h *history) never(a ask, last answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stranger(fmt.Sprintf("%s got no answer: %s %v", a.user(), last.code, last.err))
}

// told notes a definite answer.
func (h *history) told(a ask, got answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.codes[got.code]++
	h.latencies = append(h.latencies, got.took)
	m := &h.buyers[a.buyer]
	m.openKeys = slices.DeleteFunc(m.openKeys, func(key int) bool { return key == a.key })
	switch got.code {
	case codeAccepted:
		h.accept(m, got)
	case codeAlreadyOrdered:
		if !slices.Contains(m.named, got.orderID) {
			m.named = append(m.named, got.orderID)
		}
	case codeSoldOut:
		m.soldOut = true
	}
}

// accept needs mu.
func (h *history) accept(m *memory, got answer) {
	if got.durability != "fsync" {
		h.weak++
	}
	if slices.Contains(m.orders, got.orderID) {
		h.replays++
		return
	}
	m.orders = append(m.orders, got.orderID)
	h.accepted++
}

// stranger needs mu.
func (h *history) stranger(text string) {
	h.odd++
	if len(h.strange) < maxStrange {
		h.strange = append(h.strange, text)
	}
}

// tally is how far things are.
type tally struct{ asked, accepted, replays, alreadyOrdered, refused int }

func (h *history) tally() tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return tally{
		asked: h.asked, accepted: h.accepted, replays: h.replays, alreadyOrdered: h.codes[codeAlreadyOrdered],
		refused: h.codes[codeSoldOut] + h.codes[codeNotOpen] + h.codes[codeClosed],
	}
}

// open lists what buyers still don't know: one ask for each key whose request was given up and never answered.
func (h *history) open() []ask {
	h.mu.Lock()
	defer h.mu.Unlock()
	var asks []ask
	for buyer, m := range h.buyers {
		for _, key := range m.openKeys {
			asks = append(asks, ask{buyer: buyer, key: key})
		}
	}
	return asks
}
