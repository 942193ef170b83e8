package pipeline

import "slices"

// Transitions lists every change of status that an order can undergo once it is in Postgres: from a key to each of its
// values. Each is a conditional update on the statuses before it, so that of several that race exactly one finds its
// condition true. A trigger in Postgres refuses all others, from any client.
//
// A status without an entry is final: a paid order remains paid, and a payment that came too late remains due for
// refund.
var Transitions = map[OrderStatus][]OrderStatus{
	StatusAwaitingPayment: {StatusPaid, StatusCancelled, StatusExpired},
	StatusConfirmed:       {StatusCancelled}, // nothing was paid: the buyer may give it back
	StatusCancelled:       {StatusRefundDue},
	StatusExpired:         {StatusRefundDue},
	StatusRejected:        {StatusRefundDue},
}

// Before returns the statuses from which an order can become this one, in a fixed order.
func (s OrderStatus) Before() []OrderStatus {
	var before []OrderStatus
	for from, all := range Transitions {
		if slices.Contains(all, s) {
			before = append(before, from)
		}
	}
	slices.Sort(before)
	return before
}

// Final reports whether an order with this status never changes again.
func (s OrderStatus) Final() bool { return s != StatusQueued && len(Transitions[s]) == 0 }
