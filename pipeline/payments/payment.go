package payments

import (
	"fmt"
	"time"
	"unicode/utf8"

	"sluice/pipeline"

	"github.com/google/uuid"
)

// Limits of a payment.
const (
	MaxAmount        = 1_000_000_000_000 // minor units: pipeline.MaxUnitPrice times MaxQuantityLimit
	MaxIDBytes       = 255               // a provider's name of money, or of a message about it
	maxPaymentDetail = 500               // bytes of words about a refused one
)

// PaymentOutcome says what became of a payment.
type Outcome string

// The outcomes that are stored.
const (
	Waiting   Outcome = "waiting"    // its order is accepted and not stored yet; it is decided once that is done
	Paid      Outcome = "paid"       // its order is paid by it
	RefundDue Outcome = "refund_due" // the money came, and nothing is to be paid (any more): it must be paid back
	Refused   Outcome = "refused"    // it fits no order; nothing was changed
	Repeated  Outcome = "repeated"   // the same money was told of before; nothing was changed
)

// StoredOutcomes are those that a payment can be listed by.
var StoredOutcomes = []Outcome{Waiting, Paid, RefundDue, Refused, Repeated}

// Outcomes that are counted and never stored.
const (
	Replayed  Outcome = "replayed"  // the same webhook came again and got the same answer
	Ignored   Outcome = "ignored"   // a webhook about something else
	Forged    Outcome = "forged"    // its signature does not hold
	Stale     Outcome = "stale"     // it was signed too long ago, or in the future
	Oversized Outcome = "oversized" // its body is too large to be looked at
)

// PaymentReason says why a payment was refused, or is to be paid back.
type Reason string

// The reasons.
const (
	ReasonInvalid        Reason = "invalid-request"  // refused: a field breaks a rule
	ReasonUnknownSale    Reason = "unknown-sale"     // refused
	ReasonUnknownOrder   Reason = "unknown-order"    // refused: no such order in that sale, stored or queued
	ReasonForeignOrder   Reason = "foreign-order"    // refused: the order is another buyer's
	ReasonAmountMismatch Reason = "amount-mismatch"  // refused: not what the order costs
	ReasonPaymentReused  Reason = "payment-reused"   // refused: this money was told of before, for something else
	ReasonOrderEnded     Reason = "order-ended"      // to be paid back: the order was cancelled, has expired or was rejected
	ReasonAlreadyPaid    Reason = "already-paid"     // to be paid back: the order is paid by other money
	ReasonNoPaymentDue   Reason = "no-payment-due"   // to be paid back: the sale asks for no payment
	ReasonNothingDue     Reason = "refund-due-again" // to be paid back: so is what came for this order before
)

// Payment is money that we are told of, and what became of it.
type Payment struct {
	ID          int64
	WebhookID   string // of the message; empty when an operator tells
	PaymentID   string // the provider's name of the money; telling of it twice is telling of it once
	SaleID      string
	OrderID     string
	UserID      string // who paid, where the provider tells; empty otherwise
	Amount      int64  // minor units of Currency; 0 where an operator does not tell
	Currency    string // ISO 4217; empty where Amount is 0
	Outcome     Outcome
	Reason      Reason
	Detail      string               // the reason in words
	OrderStatus pipeline.OrderStatus // of the order when this was decided; empty where there is none
	Actor       string               // who told
	ReceivedAt  time.Time
	DecidedAt   time.Time // zero while it waits
}

// Validate returns a KindInvalid error that names the first field that breaks a rule.
func (p *Payment) Validate() error {
	id, err := uuid.Parse(p.OrderID)
	switch {
	case !ValidID(p.PaymentID):
		return pipeline.Errorf(pipeline.KindInvalid, "payment_id: use 1 to %d printable ASCII characters without spaces", MaxIDBytes)
	case !pipeline.ValidSaleID(p.SaleID):
		return pipeline.Errorf(pipeline.KindInvalid, "sale_id: sale ids are 1 to 64 characters of a-z, 0-9 and '-'")
	case err != nil || id.String() != p.OrderID:
		return pipeline.Errorf(pipeline.KindInvalid, "order_id: order ids are UUIDs in lower case")
	case p.UserID != "" && pipeline.ValidateUserID(p.UserID) != nil:
		return pipeline.Errorf(pipeline.KindInvalid, "user_id: %s", pipeline.ValidateUserID(p.UserID).Error())
	case p.Amount == 0 && p.Currency == "":
		return nil
	case p.Amount < 1 || p.Amount > MaxAmount:
		return pipeline.Errorf(pipeline.KindInvalid, "amount: %d is not from 1 to %d minor units", p.Amount, int64(MaxAmount))
	case !pipeline.ValidCurrency(p.Currency):
		return pipeline.Errorf(pipeline.KindInvalid, "currency: use three capital letters (ISO 4217)")
	}
	return nil
}

// ValidPaymentID reports whether an id can name money, or a message about it: 1 to MaxPaymentIDBytes printable ASCII
// characters without spaces.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxIDBytes {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

// Readable leaves out of a payment whatever no table could keep, so that one which is refused for it can be recorded.
func (p Payment) Readable() Payment {
	if !ValidID(p.WebhookID) {
		p.WebhookID = ""
	}
	if !ValidID(p.PaymentID) {
		p.PaymentID = ""
	}
	if !pipeline.ValidSaleID(p.SaleID) {
		p.SaleID = ""
	}
	if id, err := uuid.Parse(p.OrderID); err != nil || id.String() != p.OrderID { // Parse takes forms that Postgres does not
		p.OrderID = ""
	}
	if pipeline.ValidateUserID(p.UserID) != nil {
		p.UserID = ""
	}
	if p.Amount < 1 || p.Amount > MaxAmount || !pipeline.ValidCurrency(p.Currency) {
		p.Amount, p.Currency = 0, ""
	}
	return p
}

// PaymentDecision is what a payment does to its order.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	Detail  string
	Becomes pipeline.OrderStatus // what the order becomes; empty where it stays as it is
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

// Decide says what a payment does to an order as it is now. Whoever applies it must hold the order's row since it was read:
// then of a payment, a cancellation and an expiry that race exactly one finds the order waiting.
func (p *Payment) Decide(sale *pipeline.Sale, order *pipeline.Order) Decision {
	if p.UserID != "" && p.UserID != order.UserID {
		return Refusal(ReasonForeignOrder, "there is no such order of this buyer in this sale")
	}
	if due := sale.PriceOf(order.Quantity); due > 0 && p.Amount > 0 && (p.Amount != due || p.Currency != sale.Currency) {
		return Refusal(ReasonAmountMismatch, "the order costs %d %s, and %d %s were paid", due, sale.Currency, p.Amount, p.Currency)
	}
	back := func(reason Reason, becomes pipeline.OrderStatus, detail string) Decision {
		return Decision{Outcome: RefundDue, Reason: reason, Detail: detail, Becomes: becomes}
	}
	switch order.Status {
	case pipeline.StatusAwaitingPayment:
		return Decision{Outcome: Paid, Becomes: pipeline.StatusPaid}
	case pipeline.StatusCancelled, pipeline.StatusExpired, pipeline.StatusRejected:
		return back(ReasonOrderEnded, pipeline.StatusRefundDue, "the order was "+string(order.Status)+" when the money came; it is to be paid back")
	case pipeline.StatusPaid:
		return back(ReasonAlreadyPaid, "", "the order is paid by another payment; this one is to be paid back")
	case pipeline.StatusRefundDue:
		return back(ReasonNothingDue, "", "the order has ended, and another payment for it is to be paid back as well")
	default: // confirmed; queued orders have no row
		return back(ReasonNoPaymentDue, "", "the sale asks for no payment; it is to be paid back")
	}
}

// PaymentRecord is what the store made of a payment.
type Record struct {
	Payment  Payment        // as it is stored; its Outcome is empty when nothing was stored
	Order    pipeline.Order // as it is now; zero where no order was looked at
	Changed  bool           // the order was changed by this very call
	Replayed bool           // the same webhook was recorded before; Payment is what became of it
}

// WaitingPayment is what the job needs to know of a payment that waits for its order.
type WaitingPayment struct {
	ID         int64
	SaleID     string
	ReceivedAt time.Time
	Stored     bool // its order is in Postgres
}

// PaymentsFilter chooses payments. The zero value means all, from the first one on.
type Filter struct {
	After   int64 // only payments with a greater id: the last one of the page before
	SaleID  string
	OrderID string  // only of this order; a UUID, or what is none and has no payments
	Outcome Outcome // only with this outcome
	Limit   int     // at most so many; 0 or more than MaxPayments means MaxPayments
}

// MaxPayments bounds a page of payments: each has up to 1.5 KB of text.
const MaxPayments = 500

// WebhookActor is who tells of a payment when the provider does. What operators tell goes to the audit log as well.
const WebhookActor = "webhook"
