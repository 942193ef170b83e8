package payments

// Outcome says what became of a payment.
type Outcome string

// The outcomes that are stored.
const (
	Waiting   Outcome = "waiting"    // its order is accepted and not stored yet; it is decided once that is done
	Paid      Outcome = "paid"       // its order is paid by it
	RefundDue Outcome = "refund_due" // the money came, and nothing is to be paid (any more): it must be paid back
	Refunded  Outcome = "refunded"   // all of it was paid back
	Refused   Outcome = "refused"    // it fits no order; nothing was changed
	Repeated  Outcome = "repeated"   // the same payment was reported before; nothing was changed
)

// StoredOutcomes are those that a payment can be listed by.
var StoredOutcomes = []Outcome{Waiting, Paid, RefundDue, Refunded, Refused, Repeated}

// Due reports whether something is still to be done about the money of a payment.
func (o Outcome) Due() bool { return o == Waiting || o == RefundDue }

// PartiallyRefunded is the outcome of a refund of less than all that is left of a payment, which remains RefundDue.
const PartiallyRefunded Outcome = "partially_refunded"

// Outcomes that are counted and never stored.
const (
	Unneeded  Outcome = "unneeded"  // an operator's, for an order that has a payment; see Payment.Second
	Replayed  Outcome = "replayed"  // the same webhook came again and got the same answer
	Ignored   Outcome = "ignored"   // a webhook about something else
	Forged    Outcome = "forged"    // its signature is wrong
	Stale     Outcome = "stale"     // it was signed too long ago, or in the future
	Oversized Outcome = "oversized" // its body is too large to be looked at
)

// Reason says why a payment was refused, or is to be paid back.
type Reason string

// The reasons.
const (
	ReasonInvalid        Reason = "invalid-request"  // refused: a field breaks a rule
	ReasonUnknownSale    Reason = "unknown-sale"     // refused
	ReasonUnknownOrder   Reason = "unknown-order"    // refused: no such order in that sale, stored or queued
	ReasonOrderDropped   Reason = "order-dropped"    // refused: the sale's orders are not kept any more
	ReasonForeignOrder   Reason = "foreign-order"    // refused: the order is another buyer's
	ReasonAmountMismatch Reason = "amount-mismatch"  // refused: not what the order costs
	ReasonPaymentReused  Reason = "payment-reused"   // refused: this payment was reported before, for something else
	ReasonOrderEnded     Reason = "order-ended"      // to be paid back: the order was cancelled, expired or rejected
	ReasonAlreadyPaid    Reason = "already-paid"     // to be paid back: the order is paid by another payment
	ReasonNoPaymentDue   Reason = "no-payment-due"   // to be paid back: the sale asks for no payment
	ReasonNothingDue     Reason = "refund-due-again" // to be paid back: so is what came for this order before
	ReasonOrderReturned  Reason = "order-returned"   // to be paid back: the order was returned after it was paid
)

// The reasons for which a report of a refund is refused, besides ReasonInvalid and ReasonAmountMismatch.
const (
	ReasonUnknownPayment  Reason = "unknown-payment"  // no payment that counts has this id
	ReasonNoRefundDue     Reason = "no-refund-due"    // the payment pays its order
	ReasonAlreadyRefunded Reason = "already-refunded" // all of it was paid back, by other refunds
	ReasonRefundReused    Reason = "refund-reused"    // this refund was reported before, for something else
)
