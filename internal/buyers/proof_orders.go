package buyers

import (
	"fmt"
	"slices"
	"time"
)

// checkPromises compares each order that an answer named with its row.
func (p *Proof) checkPromises() {
	numbers := map[int64]string{}
	for buyer, m := range p.buyers {
		user, e := UserOf(buyer), p.history.entries[buyer]
		standing, accepted, named := 0, 0, 0
		for i, one := range m.promises() {
			by202 := i < len(m.accepted)
			if e != nil && e.order == one.order && (e.turn || by202) {
				continue // checkTurns looks at those of the waitlist
			}
			w := subject{ruleAccepted, user, one.order}
			if !by202 {
				w.rule = ruleSameOrder
				named++
			}
			p.Promised++
			p.checkNumber(w, m, one, numbers)
			if p.stands(w, m, one) {
				standing++
				if by202 {
					accepted++
				}
			}
		}
		if accepted > 1 {
			p.find(Duplicated, subject{ruleOneEach, user, m.accepted[0].order},
				"%s got a 202 for %d orders, and none was taken back", user, accepted)
		}
		if standing > 1 && len(m.named) > 0 {
			p.find(Duplicated, subject{ruleSameOrder, user, m.named[0].order},
				"%s got the names of %d orders, and none was taken back", user, standing)
		}
		if named > 0 && len(m.accepted) == 0 && len(m.openKeys) == 0 && !p.terms.Lossy {
			p.find(Contradicted, subject{ruleSameOrder, user, m.named[0].order},
				"%s has order %s, and no request was answered by 202", user, m.named[0].order)
		}
	}
	t := p.history.tally
	p.detail(ruleAccepted, "%d accepted, %d found", len(p.owners), len(p.owners))
	p.detail(ruleSameOrder, "%d times the same 202, %d times already-ordered", t.Replays, t.Outcomes[AlreadyOrdered])
}

func (p *Proof) checkNumber(w subject, m *memory, one promise, numbers map[int64]string) {
	if both, several := m.numbersOf[one.order]; several {
		p.find(Duplicated, w, "order %s was answered with the numbers %d and %d", one.order, both[0], both[1])
	}
	if one.number == 0 {
		return
	}
	if other, taken := numbers[one.number]; taken {
		p.find(Duplicated, w, "orders %s and %s were answered with one number, %d", other, one.order, one.number)
	}
	numbers[one.number] = one.order
}

// stands reports whether a promised order stands, or should.
func (p *Proof) stands(w subject, m *memory, one promise) bool {
	if p.stores == nil {
		return true
	}
	rows := p.ordersOf[one.order]
	switch len(rows) {
	case 0:
		p.find(Lost, w, "order %s of %s has no row", one.order, w.user)
		return true
	case 1:
	default:
		p.find(Duplicated, w, "order %s has %d rows", one.order, len(rows))
		return true
	}
	r := rows[0]
	if r.Status == statusRejected && p.explained(r.ID) {
		p.Refused++
		return false
	}
	switch {
	case r.Status == statusRejected, p.terms.Price == 0 && !p.live(r):
		p.find(Lost, w, "order %s of %s is %s %s", r.ID, w.user, r.Status, r.Reason)
	case r.User != w.user || r.Sale != m.sale || r.Quantity != int(m.quantity) || one.number != 0 &&
		r.number() != one.number:
		p.find(Lost, w, "order %s of %s is another one than was answered: %d units for %s", r.ID, w.user, r.Quantity,
			r.User)
	}
	return true
}

// checkRows asks of each row who can have caused it.
func (p *Proof) checkRows() {
	type place struct{ sale, user string }
	standing := map[place]int{}
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		w := subject{ruleNoStranger, r.User, r.ID}
		if r.Status == statusRejected {
			if p.promised[r.ID] {
				w.rule = ruleAccepted
			}
			if _, poisoned := p.poisonOf[r.ID]; !poisoned && !p.explained(r.ID) {
				p.find(Unburied, w, "order %s of %s is %s %s, and nothing says why", r.ID, r.User, r.Status, r.Reason)
			}
			continue
		}
		if standing[place{r.Sale, r.User}]++; standing[place{r.Sale, r.User}] == 2 {
			p.find(Duplicated, subject{ruleOneEach, r.User, r.ID}, "%s has two orders in sale %s", r.User, r.Sale)
		}
		if why := p.causeless(r); why != "" {
			p.find(Phantom, w, "order %s of %s: %s", r.ID, r.User, why)
		}
	}
	p.detail(ruleNoStranger, "%d orders, 0 strangers", len(p.stores.Orders))
	p.detail(ruleOneEach, "%d buyers with one", len(standing))
}

// causeless says why no request can have caused a row, or "".
func (p *Proof) causeless(r *Order) string {
	if one, poisoned := p.poisonOf[r.ID]; poisoned {
		return "it is a poison, " + one.Sort
	}
	if p.promised[r.ID] {
		return "" // checkPromises looks whether it is what was promised
	}
	n, known := numberOf(r.User)
	m := p.buyers[n]
	if !known || m == nil {
		return "nobody of that name asked"
	}
	open := m.unanswered
	if p.terms.Answered {
		open = len(m.openKeys)
	}
	switch {
	case m.sale != r.Sale || int(m.quantity) != r.Quantity:
		return fmt.Sprintf("it is %d of %s, asked for were %d of %s", r.Quantity, r.Sale, m.quantity, m.sale)
	case open == 0:
		return "each request was answered, and none with this order"
	}
	p.Unknown++
	return ""
}

// lied reports whether a buyer was answered sold-out by an API that could know better.
func (p *Proof) lied(m *memory) bool {
	return slices.ContainsFunc(m.soldOut, func(at time.Duration) bool {
		return !slices.ContainsFunc(p.terms.Blind, func(s Span) bool { return s.From <= at && at <= s.To })
	})
}

// checkAnswers looks for answers to one buyer that can't all be true.
func (p *Proof) checkAnswers() {
	for buyer, m := range p.buyers {
		user, e := UserOf(buyer), p.history.entries[buyer]
		if p.lied(m) && len(m.accepted) > 0 {
			p.find(Contradicted, subject{ruleNoLie, user, m.accepted[0].order}, "%s has order %s and was answered sold-out",
				user, m.accepted[0].order)
		}
		for _, one := range m.named {
			if e != nil && e.turn && e.order == one.order {
				continue
			}
			w := subject{ruleSameOrder, user, one.order}
			if p.lied(m) && len(m.accepted) == 0 {
				p.find(Contradicted, w, "%s has order %s and was answered sold-out", user, one.order)
			}
			// A rebuilt slot does not know the key any more; else the own key always gets the own 202.
			if own := func(key int16) bool { return len(m.keys) == 1 || slices.Contains(m.acceptedKeys, key) }; !p.terms.Lossy &&
				slices.ContainsFunc(m.namedKeys, own) {
				p.find(Contradicted, w, "%s repeated a request and was answered already-ordered", user)
			}
		}
		if p.terms.Answered && len(m.openKeys) > 0 {
			p.find(Lost, subject{ruleAnswered, user, ""}, "%s never learned what became of a request", user)
		}
	}
	h := p.history
	p.detail(ruleNoLie, "%d times sold-out", h.tally.Outcomes[SoldOut])
	if !p.terms.Answered {
		return
	}
	for _, text := range h.strange {
		p.find(Contradicted, subject{rule: ruleAnswered}, "%s", text)
	}
	if more := h.strangeCount - len(h.strange); more > 0 {
		p.find(Contradicted, subject{rule: ruleAnswered}, "and %d more", more)
	}
	t := h.tally
	answers := t.Requests - t.Outcomes[NoAnswer] - t.Outcomes[Unexpected]
	p.detail(ruleAnswered, "%d answers, %d asked again after giving up", answers, t.Abandoned)
}

// checkSoldOut looks at the orders of the rush, however they ended later: they are what the stock was sold out by.
func (p *Proof) checkSoldOut() {
	orders, units := 0, 0
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		if _, accepted := p.owners[r.ID]; accepted && r.Status != statusRejected {
			orders++
			units += r.Quantity
		}
	}
	p.detail(ruleSoldOut, "%d orders with %d units, of %d for sale", orders, units, p.terms.Stock)
	if units != p.terms.Stock || orders != p.terms.Stock {
		p.find(Oversold, subject{rule: ruleSoldOut}, "%s", p.details[ruleSoldOut])
	}
}
