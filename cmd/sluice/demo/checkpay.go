package demo

import (
	"fmt"
	"strings"
)

// allPaid checks that in the end every unit is paid, or for sale again.
func allPaid(b books, stock int) Check {
	paid, orders := 0, 0
	for i := range b.rows {
		if b.rows[i].Status == statusPaid {
			paid += b.rows[i].Quantity
			orders++
		}
	}
	return Check{
		Name: "units paid + units left = units for sale", OK: paid+b.left == stock,
		Detail: fmt.Sprintf("%d paid + %d left = %d", paid, b.left, stock),
	}
}

// onePaymentEach checks that each order that is paid is so by exactly one payment of the right amount, and no other order by any.
func onePaymentEach(b books) Check {
	var wrong culprits
	payments := map[string][]payment{}
	for _, p := range b.payments {
		if p.Outcome == moneyPaid {
			payments[p.OrderID] = append(payments[p.OrderID], p)
		}
	}
	paid := 0
	for i := range b.rows {
		r := &b.rows[i]
		with := payments[r.ID]
		delete(payments, r.ID)
		switch {
		case r.Status != statusPaid && len(with) > 0:
			wrong.addf("order %s is %s and has %d payments", r.ID, r.Status, len(with))
		case r.Status != statusPaid:
		case len(with) != 1 || with[0].Amount != int64(r.Quantity*unitPrice) || r.PaymentID != "pay-"+r.ID:
			wrong.addf("order %s is paid by %q and has %d payments", r.ID, r.PaymentID, len(with))
		default:
			paid++
		}
	}
	for id := range payments {
		wrong.addf("order %s is paid and is not there", id)
	}
	return wrong.check("every paid order has exactly one payment", fmt.Sprintf("%d orders, %d payments, of %d.%02d %s each", paid, paid, unitPrice/100, unitPrice%100, currency))
}

// endsAsTold checks that each order ended as its buyer and the payment provider were told, and that those of which nobody was
// told anything expired.
func endsAsTold(h *history, b books) Check {
	var wrong culprits
	count := map[string]int{}
	for i := range b.rows {
		r := &b.rows[i]
		count[r.Status]++
		if want := endTold(h.ends[r.ID]); !strings.Contains(want, r.Status) {
			wrong.addf("order %s is %s, told was %s", r.ID, r.Status, want)
		}
	}
	return wrong.check("every order ended as was told", fmt.Sprintf("%d paid, %d cancelled, %d expired, %d to be paid back",
		count[statusPaid], count[statusCancelled], count[statusExpired], count[moneyRefundDue]))
}

// endTold is the status, or one of several, that an order has after what was told of it.
func endTold(e *end) string {
	switch {
	case e == nil:
		return statusExpired
	case e.money == moneyWaiting:
		return statusPaid + " or " + moneyRefundDue // it was decided later, and nobody asked
	case e.money != "":
		return e.money
	case e.cancelled:
		return statusCancelled
	default:
		return statusExpired
	}
}

// badMoney checks that wrong amounts and forged payments did nothing: the wrong ones are on record, the forged ones not even that.
func badMoney(h *history, b books) Check {
	var wrong culprits
	bad := 0
	for i := range b.rows {
		if e := h.ends[b.rows[i].ID]; e != nil && e.bad {
			bad++
			if b.rows[i].Status == statusPaid {
				wrong.addf("order %s is paid by bad money", b.rows[i].ID)
			}
		}
	}
	for _, p := range b.payments {
		switch {
		case strings.HasSuffix(p.WebhookID, "-forged"):
			wrong.addf("the forged %s is on record as %s", p.WebhookID, p.Outcome)
		case strings.HasSuffix(p.WebhookID, "-wrong") && (p.Outcome != "refused" || p.Reason != moneyRefused):
			wrong.addf("the wrong amount of %s is on record as %s %s", p.WebhookID, p.Outcome, p.Reason)
		}
	}
	return wrong.check("wrong and forged payments changed nothing", fmt.Sprintf("%d orders, none of them paid", bad))
}

// sameMoney checks that a payment that was told again got the answer of the first time, and did nothing.
func sameMoney(h *history) Check {
	var wrong culprits
	for _, id := range h.otherAnswers {
		wrong.addf("the payment of order %s was answered differently when it was told again", id)
	}
	return wrong.check("a payment told twice counted once", fmt.Sprintf("%d times under the same webhook-id the same answer, %d times under another",
		h.toldTwice, h.payments[moneyRepeated]))
}
