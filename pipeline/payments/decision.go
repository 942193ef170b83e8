package payments

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"sluice/pipeline"
)

// Decision is what a payment does to its order.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	Detail  string
	Becomes pipeline.OrderStatus // what the order becomes; empty where it does not change
}

// Refusal refuses a payment. The words are cut to fit.
func Refusal(reason Reason, format string, args ...any) Decision {
	detail := fmt.Sprintf(format, args...)
	if len(detail) > maxPaymentDetail {
		detail = detail[:maxPaymentDetail]
		for !utf8.ValidString(detail) {
			detail = detail[:len(detail)-1]
		}
	}
	return Decision{Outcome: Refused, Reason: reason, Detail: detail}
}

// Decide says what a payment does to an order as it is now. The caller that applies it must have locked the order's row
// since it was read: then of a payment, a cancellation and an expiry that race exactly one finds the order awaiting
// payment.
func (p *Payment) Decide(sale *pipeline.Sale, order *pipeline.Order) Decision {
	if p.UserID != "" && p.UserID != order.UserID && !Erased(order.UserID) {
		return Refusal(ReasonForeignOrder, "there is no such order of this buyer in this sale")
	}
	due, currency := sale.PriceOf(order.ID, order.Quantity)
	if due > 0 && p.Amount > 0 && (p.Amount != due || p.Currency != currency) {
		return Refusal(
			ReasonAmountMismatch, "the order costs %s, and %s were paid", MoneyText(due, currency),
			MoneyText(p.Amount, p.Currency),
		)
	}
	if p.WebhookID == "" && !p.Second && hasPayment(order.Status) {
		return Decision{Outcome: Unneeded, Detail: "the order is " + string(order.Status) + " by another payment"}
	}
	back := func(reason Reason, becomes pipeline.OrderStatus, detail string) Decision {
		return Decision{Outcome: RefundDue, Reason: reason, Detail: detail, Becomes: becomes}
	}
	switch order.Status {
	case pipeline.StatusAwaitingPayment:
		return Decision{Outcome: Paid, Becomes: pipeline.StatusPaid}
	case pipeline.StatusCancelled, pipeline.StatusExpired, pipeline.StatusRejected:
		return back(
			ReasonOrderEnded, pipeline.StatusRefundDue,
			"the order was "+string(order.Status)+" when the money came; it is to be paid back",
		)
	case pipeline.StatusPaid:
		return back(ReasonAlreadyPaid, "", "the order is paid by another payment; this one is to be paid back")
	case pipeline.StatusRefundDue, pipeline.StatusReturned, pipeline.StatusRefunded:
		return back(ReasonNothingDue, "", "the order has ended, and another payment for it is to be paid back as well")
	default: // confirmed; queued orders have no row
		return back(ReasonNoPaymentDue, "", "the sale asks for no payment; it is to be paid back")
	}
}

// erasedPrefix is what the pseudonyms of erased buyers begin with, see the table buyer_erasures.
const erasedPrefix = "erased-"

// Erased reports whether an order's buyer was erased: who pays it can't be compared with anybody.
func Erased(userID string) bool { return strings.HasPrefix(userID, erasedPrefix) }

// hasPayment reports whether orders with this status have a payment.
func hasPayment(status pipeline.OrderStatus) bool {
	switch status {
	case pipeline.StatusPaid, pipeline.StatusRefundDue, pipeline.StatusReturned, pipeline.StatusRefunded:
		return true
	default:
		return false
	}
}
