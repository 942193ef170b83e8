package chaos

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// told is what came of one request.
type told uint8

// What a buyer can be told. Everything else is noted in words, see history.wonder.
const (
	toldNothing  told = iota // no answer, or one that asks for patience: the order may or may not stand
	toldAccepted             // 202
	toldNamed                // 409 already-ordered: which order the buyer has
	toldSoldOut              // 409
)

func (t told) String() string {
	return [...]string{"no answer", "202 accepted", "409 already-ordered", "409 sold-out"}[t]
}

// fact is one line of the history: who asked for what, and what came of it.
type fact struct {
	order    uuid.UUID // of a 202 or a 409 already-ordered
	number   int64     // of a 202
	at       int64     // ns after the start, when the answer came
	buyer    uint32
	sale     uint8 // index
	quantity uint8
	told     told
	keyed    bool // the request had the buyer's Idempotency-Key
}

// poison is a stream entry that was added by hand.
type poison struct {
	entry, order string // of the stream; an entry without an order has no order, an order that Redis itself admitted no entry
	sort         string
	lettered     bool // it must end as a dead letter; else it must change nothing
}

// history is what clients were told, in the order in which they were: the run's own witness. Nothing in it comes from a
// store or a log. It grows by some 48 bytes for a request.
type history struct {
	began time.Time

	mu       sync.Mutex // protects the rest
	facts    []fact
	poisons  []poison
	odd      []string // answers that nobody should get
	oddCount int
	silence  []silence
	last     int64 // when the last 202 came
	accepted int
}

// silence is a time without any 202, of at least shortSilence.
type silence struct{ from, to time.Duration }

const (
	shortSilence = 100 * time.Millisecond
	maxOdd       = 20 // kept in words
)

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) note(f fact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.at = int64(time.Since(h.began))
	h.facts = append(h.facts, f)
	if f.told != toldAccepted {
		return
	}
	h.accepted++
	if f.at-h.last >= int64(shortSilence) {
		h.silence = append(h.silence, silence{time.Duration(h.last), time.Duration(f.at)})
	}
	h.last = f.at
}

// wonder notes an answer that nobody should get.
func (h *history) wonder(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.oddCount++; len(h.odd) < maxOdd {
		h.odd = append(h.odd, fmt.Sprintf("%.1fs: ", time.Since(h.began).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (h *history) poisoned(p poison) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.poisons = append(h.poisons, p)
}
