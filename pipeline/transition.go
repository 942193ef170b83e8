package pipeline

import "slices"

// Transitions lists every change of status that an order can undergo once it is in Postgres: from a key to each of its
// values. Each is a conditional update on the statuses before it, so that of several that race exactly one finds its
// condition true. A trigger in Postgres refuses all others, from any client.
//
// An order is live up to paid. What follows is about its money: a payment that came too late, or that was returned with
// the order, is due for refund until it is refunded.
var Transitions = map[OrderStatus][]OrderStatus{
	StatusAwaitingPayment: {StatusPaid, StatusCancelled, StatusExpired},
	StatusConfirmed:       {StatusCancelled}, // nothing was paid: the buyer may give it back
	StatusCancelled:       {StatusRefundDue},
	StatusExpired:         {StatusRefundDue},
	StatusRejected:        {StatusRefundDue},
	StatusPaid:            {StatusReturned}, // by an operator
	StatusRefundDue:       {StatusRefunded},
	StatusReturned:        {StatusRefunded},
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

// Final reports whether nobody waits for an order with this status to change: it is paid, or what is left is that an
// operator returns it and that its money is paid back, days later.
func (s OrderStatus) Final() bool {
	switch s {
	case StatusPaid, StatusRefundDue, StatusReturned, StatusRefunded:
		return true
	default:
		return false
	}
}
