package payments

// Outcome says what became of a payment.
type Outcome string

// The outcomes that are stored.
const (
	Waiting   Outcome = "waiting"    // its order is accepted and not stored yet; it is decided once that is done
	Paid      Outcome = "paid"       // its order is paid by it
	RefundDue Outcome = "refund_due" // the money came, and nothing is to be paid (any more): it must be paid back
	Refused   Outcome = "refused"    // it fits no order; nothing was changed
	Repeated  Outcome = "repeated"   // the same payment was reported before; nothing was changed
)

// StoredOutcomes are those that a payment can be listed by.
var StoredOutcomes = []Outcome{Waiting, Paid, RefundDue, Refused, Repeated}

// Outcomes that are counted and never stored.
const (
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
	ReasonForeignOrder   Reason = "foreign-order"    // refused: the order is another buyer's
	ReasonAmountMismatch Reason = "amount-mismatch"  // refused: not what the order costs
	ReasonPaymentReused  Reason = "payment-reused"   // refused: this payment was reported before, for something else
	ReasonOrderEnded     Reason = "order-ended"      // to be paid back: the order was cancelled, expired or rejected
	ReasonAlreadyPaid    Reason = "already-paid"     // to be paid back: the order is paid by another payment
	ReasonNoPaymentDue   Reason = "no-payment-due"   // to be paid back: the sale asks for no payment
	ReasonNothingDue     Reason = "refund-due-again" // to be paid back: so is what came for this order before
)
