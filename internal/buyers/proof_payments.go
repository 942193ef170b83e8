package buyers

import "strings"

// checkPayments checks that each order that is paid is so by exactly one payment of the right amount, and no other
// order by any; and that a payment that was reported again got the answer of the first time, and did nothing.
func (p *Proof) checkPayments() {
	payments := map[string][]paymentRecord{}
	for _, one := range p.stores.payments {
		if one.Outcome == PaymentPaid {
			payments[one.OrderID] = append(payments[one.OrderID], one)
		}
	}
	paid := 0
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		w, with := subject{ruleOnePayment, r.User, r.ID}, payments[r.ID]
		delete(payments, r.ID)
		switch {
		case r.Status != statusPaid && len(with) > 0:
			p.find(Contradicted, w, "order %s is %s and has %d payments", r.ID, r.Status, len(with))
		case r.Status != statusPaid:
		case len(with) != 1 || with[0].Amount != int64(r.Quantity*p.terms.Price) || r.PaymentID != "pay-"+r.ID:
			p.find(Contradicted, w, "order %s is paid by %q and has %d payments", r.ID, r.PaymentID, len(with))
		default:
			paid++
		}
	}
	for id := range payments {
		p.find(Contradicted, subject{rule: ruleOnePayment, order: id}, "order %s is paid and is not there", id)
	}
	p.detail(ruleOnePayment, "%d orders, %d payments, of %d.%02d %s each", paid, paid, p.terms.Price/100,
		p.terms.Price%100, p.terms.Currency)

	for _, id := range p.history.otherAnswers {
		p.find(Contradicted, subject{rule: ruleOnce, order: id},
			"the payment of order %s was answered differently when it was reported again", id)
	}
	p.detail(ruleOnce, "%d times under the same webhook-id the same answer, %d times under another", p.history.repeated,
		p.history.payments[PaymentRepeated])
}

// checkBadPayments checks that wrong amounts and forged payments did nothing: the wrong ones are on record, the
// forged ones not even that.
func (p *Proof) checkBadPayments() {
	bad := 0
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		if s := p.history.settled[r.ID]; s != nil && s.bad {
			bad++
			if r.Status == statusPaid {
				p.find(Contradicted, subject{ruleBadMoney, r.User, r.ID}, "order %s is paid by bad money", r.ID)
			}
		}
	}
	for _, one := range p.stores.payments {
		w := subject{rule: ruleBadMoney, order: one.OrderID}
		switch {
		case strings.HasSuffix(one.WebhookID, suffixForged):
			p.find(Contradicted, w, "the forged %s is on record as %s", one.WebhookID, one.Outcome)
		case strings.HasSuffix(one.WebhookID, suffixWrong) && (one.Outcome != "refused" || one.Reason != paymentRefused):
			p.find(Contradicted, w, "the wrong amount of %s is on record as %s %s", one.WebhookID, one.Outcome,
				one.Reason)
		}
	}
	p.detail(ruleBadMoney, "%d orders, none of them paid", bad)
}

// checkEnds checks that each order ended as was answered to its buyer and the payment provider, and that those
// without any answer expired.
func (p *Proof) checkEnds() {
	count := map[string]int{}
	for i := range p.stores.Orders {
		r := &p.stores.Orders[i]
		count[r.Status]++
		if want := p.history.settled[r.ID].end(); !strings.Contains(want, r.Status) {
			p.find(Contradicted, subject{ruleEnds, r.User, r.ID}, "order %s is %s, answered was %s", r.ID, r.Status,
				want)
		}
	}
	p.detail(ruleEnds, "%d paid, %d cancelled, %d expired, %d to be paid back",
		count[statusPaid], count[statusCancelled], count[statusExpired], count[PaymentRefundDue])
}

// end is the status, or one of several, that an order has after what was answered about it.
func (s *settled) end() string {
	switch {
	case s == nil:
		return statusExpired
	case s.money == PaymentWaiting:
		return statusPaid + " or " + PaymentRefundDue // it was decided later, and nobody asked
	case s.money != "":
		return s.money
	case s.cancelled:
		return statusCancelled
	default:
		return statusExpired
	}
}
