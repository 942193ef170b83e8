package buyers

import (
	"cmp"
	"slices"
	"time"
)

// checkInOrder checks that units went to buyers in the order in which they had joined the waitlist. What they know of
// that order: the places in their answers while nobody had left the list yet; and that a buyer who had the answer
// before another one asked was first. Those who were not served at all stand behind those who were.
func (p *Proof) checkInOrder() {
	line := p.line()
	var lastPlace, served int
	var lastAsked time.Time
	for _, w := range line {
		if w.position > 0 && w.position < lastPlace || w.answered.Before(lastAsked) {
			p.find(Contradicted, subject{ruleInOrder, w.user, w.order}, "%s, at place %d, was overtaken", w.user,
				w.position)
		}
		if w.sequence == 0 {
			continue // those who were not served are not in any order among each other
		}
		served++
		lastPlace = max(lastPlace, w.position)
		if w.asked.After(lastAsked) {
			lastAsked = w.asked
		}
	}
	p.detail(ruleInOrder, "%d served, 0 inversions; %d left before, %d were not reached", served, p.history.left,
		len(line)-served)
}

// inLine is one who waited and did not leave.
type inLine struct {
	*entry
	user     string
	sequence int64 // of the accept; 0: not served
}

// line lists those who waited in the order in which they were served; then those who were not.
func (p *Proof) line() []inLine {
	var line []inLine
	for buyer, e := range p.history.entries {
		if e.left {
			continue
		}
		w := inLine{entry: e, user: UserOf(buyer)}
		if rows := p.ordersOf[e.order]; len(rows) > 0 {
			w.sequence = rows[len(rows)-1].Sequence
		}
		line = append(line, w)
	}
	slices.SortFunc(line, func(a, b inLine) int {
		if (a.sequence == 0) != (b.sequence == 0) {
			return cmp.Compare(b.sequence, a.sequence)
		}
		return cmp.Compare(a.sequence, b.sequence)
	})
	return line
}

// checkTurns checks that those whose turn came by the answer have that order, and others who waited or left have none.
func (p *Proof) checkTurns() {
	turns := 0
	for buyer, e := range p.history.entries {
		var r *Order
		if rows := p.ordersOf[e.order]; len(rows) > 0 {
			r = rows[0]
		}
		w := subject{ruleTurns, UserOf(buyer), e.order}
		switch {
		case e.left && r != nil:
			p.find(Contradicted, w, "%s left the list and has order %s", w.user, r.ID)
		case e.turn && (r == nil || r.User != w.user || r.Quantity != 1):
			p.find(Contradicted, w, "%s should have order %s, and has not", w.user, e.order)
		case !e.turn && r != nil:
			p.find(Contradicted, w, "%s has order %s and does not know", w.user, r.ID)
		case e.turn:
			turns++
		}
	}
	p.detail(ruleTurns, "%d turns, %d left", turns, p.history.left)
}
