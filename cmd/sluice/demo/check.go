package demo

import (
	"fmt"
	"strings"
)

// Check is one thing that must be true at the end.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was counted; when it is not OK, what is wrong
}

// maxExamples bounds how many culprits a failed check names.
const maxExamples = 3

// culprits collects what breaks a rule.
type culprits struct {
	n        int
	examples []string
}

func (c *culprits) addf(format string, args ...any) {
	c.n++
	if len(c.examples) < maxExamples {
		c.examples = append(c.examples, fmt.Sprintf(format, args...))
	}
}

// check makes the Check: fine tells what was counted when nothing breaks the rule.
func (c *culprits) check(name, fine string) Check {
	if c.n == 0 {
		return Check{Name: name, OK: true, Detail: fine}
	}
	detail := fmt.Sprintf("%d wrong: %s", c.n, strings.Join(c.examples, "; "))
	if c.n > len(c.examples) {
		detail += "; …"
	}
	return Check{Name: name, Detail: detail}
}

// compare holds what the buyers and the payment provider were told against what Postgres and Redis hold. It trusts neither.
func compare(h *history, b books, stock int) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	owners, rows := h.ownersNow(), b.rows // order → buyer who was told 202
	return []Check{
		everyAcceptIsARow(owners, rows),
		everyRowWasAccepted(h, owners, rows),
		exactly(owners, rows, stock),
		onePerBuyer(h, rows),
		sameAnswer(h),
		noContradiction(h),
		everyoneKnows(h),
		onePaymentEach(b),
		sameMoney(h),
		badMoney(h, b),
		endsAsTold(h, b),
		inOrder(h, b),
		turnsAsTold(h, b),
		allPaid(b, stock),
	}
}

func everyAcceptIsARow(owners map[string]int, rows []row) Check {
	var wrong culprits
	found := map[string]int{}
	for i := range rows {
		r := &rows[i]
		found[r.ID]++
		buyer, told := owners[r.ID]
		if told && (r.Status == statusRejected || r.Quantity != 1 || r.UserID != (ask{buyer: buyer}).user()) {
			wrong.addf("order %s is %d units for %s, %s", r.ID, r.Quantity, r.UserID, r.Status)
		}
	}
	for id := range owners {
		if found[id] != 1 {
			wrong.addf("order %s was accepted and has %d rows", id, found[id])
		}
	}
	return wrong.check("every 202 is exactly one order", fmt.Sprintf("%d accepted, %d found", len(owners), len(owners)))
}

// everyRowWasAccepted knows the orders that a 202 named: of the rush, or of those who wait.
func everyRowWasAccepted(h *history, owners map[string]int, rows []row) Check {
	var wrong culprits
	promised := map[string]bool{}
	for buyer := range h.buyers {
		promised[h.buyers[buyer].stay.orderID] = true
	}
	for i := range rows {
		if _, told := owners[rows[i].ID]; !told && !promised[rows[i].ID] {
			wrong.addf("nobody was told of order %s of %s", rows[i].ID, rows[i].UserID)
		}
	}
	return wrong.check("no order without a 202", fmt.Sprintf("%d orders, 0 strangers", len(rows)))
}

// exactly looks at the orders of the rush, however they ended later: they are what the stock was sold out by.
func exactly(owners map[string]int, rows []row, stock int) Check {
	orders, units := 0, 0
	for i := range rows {
		if _, told := owners[rows[i].ID]; told && rows[i].Status != statusRejected {
			orders++
			units += rows[i].Quantity
		}
	}
	return Check{
		Name: "the rush sold out to the unit: no oversell, no undersell", OK: units == stock && orders == stock,
		Detail: fmt.Sprintf("%d orders with %d units, of %d for sale", orders, units, stock),
	}
}

func onePerBuyer(h *history, rows []row) Check {
	var wrong culprits
	orders := map[string]int{}
	for i := range rows {
		orders[rows[i].UserID]++
	}
	for user, n := range orders {
		if n != 1 {
			wrong.addf("%s has %d orders", user, n)
		}
	}
	for buyer := range h.buyers {
		if n := len(h.buyers[buyer].orders); n > 1 {
			wrong.addf("%s was told of %d orders", (ask{buyer: buyer}).user(), n)
		}
	}
	return wrong.check("one order per buyer", fmt.Sprintf("%d buyers with one", len(orders)))
}

// sameAnswer checks that whoever asked again, with the same key or another, was pointed at the order they have.
func sameAnswer(h *history) Check {
	var wrong culprits
	for buyer := range h.buyers {
		m := &h.buyers[buyer]
		for _, id := range m.named {
			if id == m.stay.orderID && m.stay.turn {
				continue
			}
			if len(m.orders) != 1 || m.orders[0] != id {
				wrong.addf("%s was told to have order %s, and was accepted with %v", (ask{buyer: buyer}).user(), id, m.orders)
			}
		}
	}
	return wrong.check("asking again never gave another order",
		fmt.Sprintf("%d times the same 202, %d times already-ordered", h.replays, h.codes[codeAlreadyOrdered]))
}

// noContradiction checks that nobody who has an order was ever told that there is none left.
func noContradiction(h *history) Check {
	var wrong culprits
	for buyer := range h.buyers {
		if m := &h.buyers[buyer]; m.soldOut && len(m.orders) > 0 {
			wrong.addf("%s has order %s and was told sold-out", (ask{buyer: buyer}).user(), m.orders[0])
		}
	}
	return wrong.check("nobody with an order was told sold-out", fmt.Sprintf("%d times sold-out", h.codes[codeSoldOut]))
}

// everyoneKnows checks that each ask has an answer in the end, and no answer was strange or promised less than a disk.
func everyoneKnows(h *history) Check {
	var wrong culprits
	for _, text := range h.strange {
		wrong.addf("%s", text)
	}
	wrong.n += h.odd - len(h.strange)
	for buyer := range h.buyers {
		if keys := h.buyers[buyer].openKeys; len(keys) > 0 {
			wrong.addf("%s never learned what became of a request", (ask{buyer: buyer}).user())
		}
	}
	if h.weak > 0 {
		wrong.addf("%d receipts did not promise fsync", h.weak)
	}
	return wrong.check("every question was answered", fmt.Sprintf("%d answers, %d asked again after giving up", len(h.latencies), h.abandoned))
}
