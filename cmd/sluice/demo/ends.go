package demo

import (
	"fmt"
	"net/http"
	"time"
)

// What becomes of a payment, as the provider is told.
const (
	moneyPaid      = "paid"
	moneyRefundDue = "refund_due"
	moneyWaiting   = "waiting"
	moneyRepeated  = "repeated"
	moneyRefused   = "amount-mismatch"
	moneyForged    = "invalid-signature"
)

// end is what was told of one order after it was accepted: by the API, to its buyer and to the payment provider.
type end struct {
	money     string // what became of the right amount: paid, waiting or refund_due; empty: nobody sent it
	answer    string // the body of that answer
	told      int    // how often it was answered
	bad       bool   // a wrong amount or a forged payment came
	cancelled bool
}

// stay is what a buyer who joined the waitlist remembers.
type stay struct {
	orderID  string // named by the 202: of the order that is made when the turn comes; empty: never joined
	position int    // as told while no unit had come free and nobody had left; 0 afterwards
	asked    time.Time
	answered time.Time
	left     bool // was told so
	turn     bool // was told to have the order
}

// changes notes that units may come free from now on, if not before.
func (h *history) changes(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quietUntil.IsZero() || at.Before(h.quietUntil) {
		h.quietUntil = at
	}
}

// paid notes what the provider was told of the right amount.
func (h *history) paid(p pledge, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.payments[moneyOf(got)]++
	e := h.endOf(p.orderID)
	money := moneyOf(got)
	switch {
	case money != moneyPaid && money != moneyWaiting && money != moneyRefundDue:
		h.stranger(fmt.Sprintf("the payment of order %s was answered by %d %.200s", p.orderID, got.status, got.body))
		return
	case e.told > 0:
		h.toldTwice++
	}
	e.told++
	switch {
	case e.money == "" || e.money == moneyWaiting && money != moneyWaiting:
		e.money, e.answer = money, got.body // one that waited is told what became of it
	case money == moneyWaiting: // it was, at the moment of this answer
	case got.body != e.answer:
		h.otherAnswers = append(h.otherAnswers, p.orderID)
	}
}

// again notes what the provider was told when it named a payment a second time.
func (h *history) again(p pledge, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.payments[moneyOf(got)]++
	if got.outcome != moneyRepeated {
		h.otherAnswers = append(h.otherAnswers, p.orderID)
	}
}

// bad notes what became of money that must change nothing.
func (h *history) bad(p pledge, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.payments[moneyOf(got)]++
	h.endOf(p.orderID).bad = true
	if p.fate == isForged && got.code != moneyForged {
		h.stranger(fmt.Sprintf("a forged payment of order %s was answered by %d %.200s", p.orderID, got.status, got.body))
	}
}

// moneyOf is the outcome, or the code of the problem.
func moneyOf(got reply) string {
	if got.outcome != "" {
		return got.outcome
	}
	return got.code
}

// cancelled notes what a buyer was told who cancelled. One who was too late has an order that had ended otherwise.
func (h *history) cancelled(p pledge, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case got.status == http.StatusOK && got.state == statusCancelled:
		h.endOf(p.orderID).cancelled = true
	case got.code != "not-cancellable":
		h.stranger(fmt.Sprintf("cancelling order %s was answered by %d %.200s", p.orderID, got.status, got.body))
	}
}

// endOf needs mu.
func (h *history) endOf(orderID string) *end {
	if h.ends[orderID] == nil {
		h.ends[orderID] = &end{}
	}
	return h.ends[orderID]
}

// joined notes what a buyer was told who wants to wait. Where units came free meanwhile, there is nothing to wait for.
func (h *history) joined(buyer int, asked time.Time, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case got.status == http.StatusAccepted && got.orderID != "" && got.position > 0:
		now := time.Now()
		s := stay{orderID: got.orderID, asked: asked, answered: now}
		if h.quietUntil.IsZero() || now.Before(h.quietUntil) {
			s.position = got.position
		}
		h.buyers[buyer].stay = s
		h.waiters++
	case got.code != "not-sold-out":
		h.stranger(fmt.Sprintf("%s joined the waitlist and was answered by %d %.200s", (ask{buyer: buyer}).user(), got.status, got.body))
	}
}

// leftList notes what a buyer was told who left the waitlist. For whom the turn came first, it has come.
func (h *history) leftList(buyer int, got reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case got.status == http.StatusNoContent:
		h.buyers[buyer].stay.left = true
		h.leavers++
	case got.code != codeAlreadyOrdered:
		h.stranger(fmt.Sprintf("%s left the waitlist and was answered by %d %.200s", (ask{buyer: buyer}).user(), got.status, got.body))
	}
}

// looked notes what a buyer was told about the own place, and reports whether the turn has come.
func (h *history) looked(buyer int, got reply) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.buyers[buyer].stay
	switch {
	case got.state == "ordered" && got.orderID == s.orderID:
		s.turn = true
		return true
	case got.state != "waiting" || got.orderID != s.orderID:
		h.stranger(fmt.Sprintf("%s waits for order %s and was told %d %.200s", (ask{buyer: buyer}).user(), s.orderID, got.status, got.body))
	}
	return false
}

// unanswered notes that something that is no order request got no answer at all.
func (h *history) unanswered(what string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stranger(fmt.Sprintf("%s: %v", what, err))
}

// owners tells who was told which order by a 202 of the rush.
func (h *history) owners() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ownersNow()
}

// ownersNow needs mu.
func (h *history) ownersNow() map[string]int {
	owners := map[string]int{}
	for buyer := range h.buyers {
		for _, id := range h.buyers[buyer].orders {
			if id != h.buyers[buyer].stay.orderID {
				owners[id] = buyer
			}
		}
	}
	return owners
}

// losers are those who were told sold-out and have nothing.
func (h *history) losers() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var losers []int
	for buyer := range h.buyers {
		if m := &h.buyers[buyer]; m.soldOut && len(m.orders) == 0 && len(m.openKeys) == 0 {
			losers = append(losers, buyer)
		}
	}
	return losers
}

// waiting are those who joined, did not leave, and were not told that their turn has come.
func (h *history) waiting() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waiting []int
	for buyer := range h.buyers {
		if s := &h.buyers[buyer].stay; s.orderID != "" && !s.left && !s.turn {
			waiting = append(waiting, buyer)
		}
	}
	return waiting
}
