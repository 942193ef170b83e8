package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// inOrder checks that units went to people in the order in which they had joined. What the buyers know of that order: the
// places they were told while nobody had left the list yet; and that whoever had the answer before somebody else asked was
// first. Who was not served at all stands behind all who were.
func inOrder(h *history, b books) Check {
	var wrong culprits
	line := servedLine(h, b)
	var lastPlace int
	var lastAsked time.Time
	served := 0
	for i := range line {
		w := &line[i]
		if w.stay.position > 0 && w.stay.position < lastPlace || w.stay.answered.Before(lastAsked) {
			wrong.addf("%s, at place %d, was overtaken", (ask{buyer: w.buyer}).user(), w.stay.position)
		}
		if w.sequence == 0 {
			continue // those who were not served are not in any order among each other
		}
		served++
		lastPlace = max(lastPlace, w.stay.position)
		if w.stay.asked.After(lastAsked) {
			lastAsked = w.stay.asked
		}
	}
	return wrong.check("units went to those who waited, in the order in which they had joined",
		fmt.Sprintf("%d served, 0 inversions; %d left before, %d were not reached", served, h.leavers, len(line)-served))
}

// inLine is one who waited and did not leave.
type inLine struct {
	buyer    int
	stay     stay
	sequence int64 // of the accept; 0: not served
}

// servedLine lists those who waited in the order in which they were served; then those who were not.
func servedLine(h *history, b books) []inLine {
	sequences := map[string]int64{}
	for i := range b.rows {
		sequences[b.rows[i].ID] = b.rows[i].Sequence
	}
	var line []inLine
	for buyer := range h.buyers {
		if s := h.buyers[buyer].stay; s.orderID != "" && !s.left {
			line = append(line, inLine{buyer, s, sequences[s.orderID]})
		}
	}
	slices.SortFunc(line, func(a, b inLine) int {
		if (a.sequence == 0) != (b.sequence == 0) {
			return cmp.Compare(b.sequence, a.sequence)
		}
		return cmp.Compare(a.sequence, b.sequence)
	})
	return line
}

// turnsAsTold checks that whoever was told that the turn has come has that order, nobody else who waited has one, and whoever
// left has none.
func turnsAsTold(h *history, b books) Check {
	var wrong culprits
	rows := map[string]*row{}
	for i := range b.rows {
		rows[b.rows[i].ID] = &b.rows[i]
	}
	turns := 0
	for buyer := range h.buyers {
		s, user := &h.buyers[buyer].stay, (ask{buyer: buyer}).user()
		r := rows[s.orderID]
		switch {
		case s.orderID == "":
		case s.left && r != nil:
			wrong.addf("%s left the list and has order %s", user, r.ID)
		case s.turn && (r == nil || r.UserID != user || r.Quantity != 1):
			wrong.addf("%s was told to have order %s, and has not", user, s.orderID)
		case !s.turn && r != nil:
			wrong.addf("%s has order %s and was not told", user, r.ID)
		case s.turn:
			turns++
		}
	}
	return wrong.check("whoever's turn came has the order, whoever left has none", fmt.Sprintf("%d turns, %d left", turns, h.leavers))
}
