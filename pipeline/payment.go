package pipeline

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of a payment.
const (
	MaxUnitPrice      = 1_000_000_000     // minor units per unit: some millions in any currency
	MaxPaymentAmount  = 1_000_000_000_000 // minor units: MaxUnitPrice times MaxQuantityLimit
	MaxPaymentIDBytes = 255               // a provider's name of money, or of a message about it
	maxPaymentDetail  = 500               // bytes of words about a refused one
)

// PaymentOutcome says what became of a payment.
type PaymentOutcome string

// The outcomes that are stored.
const (
	PaymentWaiting   PaymentOutcome = "waiting"    // its order is accepted and not stored yet; it is decided once that is done
	PaymentPaid      PaymentOutcome = "paid"       // its order is paid by it
	PaymentRefundDue PaymentOutcome = "refund_due" // the money came, and nothing is to be paid (any more): it must be paid back
	PaymentRefused   PaymentOutcome = "refused"    // it fits no order; nothing was changed
	PaymentRepeated  PaymentOutcome = "repeated"   // the same money was told of before; nothing was changed
)

// StoredOutcomes are those that a payment can be listed by.
var StoredOutcomes = []PaymentOutcome{PaymentWaiting, PaymentPaid, PaymentRefundDue, PaymentRefused, PaymentRepeated}

// Outcomes that are counted and never stored.
const (
	PaymentReplayed  PaymentOutcome = "replayed"  // the same webhook came again and got the same answer
	PaymentIgnored   PaymentOutcome = "ignored"   // a webhook about something else
	PaymentForged    PaymentOutcome = "forged"    // its signature does not hold
	PaymentStale     PaymentOutcome = "stale"     // it was signed too long ago, or in the future
	PaymentOversized PaymentOutcome = "oversized" // its body is too large to be looked at
)

// PaymentReason says why a payment was refused, or is to be paid back.
type PaymentReason string

// The reasons.
const (
	ReasonInvalid        PaymentReason = "invalid-request"  // refused: a field breaks a rule
	ReasonUnknownSale    PaymentReason = "unknown-sale"     // refused
	ReasonUnknownOrder   PaymentReason = "unknown-order"    // refused: no such order in that sale, stored or queued
	ReasonForeignOrder   PaymentReason = "foreign-order"    // refused: the order is another buyer's
	ReasonAmountMismatch PaymentReason = "amount-mismatch"  // refused: not what the order costs
	ReasonPaymentReused  PaymentReason = "payment-reused"   // refused: this money was told of before, for something else
	ReasonOrderEnded     PaymentReason = "order-ended"      // to be paid back: the order was cancelled, has expired or was rejected
	ReasonAlreadyPaid    PaymentReason = "already-paid"     // to be paid back: the order is paid by other money
	ReasonNoPaymentDue   PaymentReason = "no-payment-due"   // to be paid back: the sale asks for no payment
	ReasonNothingDue     PaymentReason = "refund-due-again" // to be paid back: so is what came for this order before
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
	Outcome     PaymentOutcome
	Reason      PaymentReason
	Detail      string      // the reason in words
	OrderStatus OrderStatus // of the order when this was decided; empty where there is none
	Actor       string      // who told
	ReceivedAt  time.Time
	DecidedAt   time.Time // zero while it waits
}

// Validate returns a KindInvalid error that names the first field that breaks a rule.
func (p *Payment) Validate() error {
	id, err := uuid.Parse(p.OrderID)
	switch {
	case !ValidPaymentID(p.PaymentID):
		return Errorf(KindInvalid, "payment_id: use 1 to %d printable ASCII characters without spaces", MaxPaymentIDBytes)
	case !ValidSaleID(p.SaleID):
		return Errorf(KindInvalid, "sale_id: sale ids are 1 to 64 characters of a-z, 0-9 and '-'")
	case err != nil || id.String() != p.OrderID:
		return Errorf(KindInvalid, "order_id: order ids are UUIDs in lower case")
	case p.UserID != "" && ValidateUserID(p.UserID) != nil:
		return Errorf(KindInvalid, "user_id: %s", ValidateUserID(p.UserID).Error())
	case p.Amount == 0 && p.Currency == "":
		return nil
	case p.Amount < 1 || p.Amount > MaxPaymentAmount:
		return Errorf(KindInvalid, "amount: %d is not from 1 to %d minor units", p.Amount, int64(MaxPaymentAmount))
	case !ValidCurrency(p.Currency):
		return Errorf(KindInvalid, "currency: use three capital letters (ISO 4217)")
	}
	return nil
}

// ValidPaymentID reports whether an id can name money, or a message about it: 1 to MaxPaymentIDBytes printable ASCII
// characters without spaces.
func ValidPaymentID(id string) bool {
	if id == "" || len(id) > MaxPaymentIDBytes {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

// ValidCurrency reports whether a text has the form of an ISO 4217 code. Which of them exist is left to whoever sets prices.
func ValidCurrency(code string) bool {
	if len(code) != 3 {
		return false
	}
	for i := range len(code) {
		if code[i] < 'A' || code[i] > 'Z' {
			return false
		}
	}
	return true
}

// Readable leaves out of a payment whatever no table could keep, so that one which is refused for it can be recorded.
func (p Payment) Readable() Payment {
	if !ValidPaymentID(p.WebhookID) {
		p.WebhookID = ""
	}
	if !ValidPaymentID(p.PaymentID) {
		p.PaymentID = ""
	}
	if !ValidSaleID(p.SaleID) {
		p.SaleID = ""
	}
	if id, err := uuid.Parse(p.OrderID); err != nil || id.String() != p.OrderID { // Parse takes forms that Postgres does not
		p.OrderID = ""
	}
	if ValidateUserID(p.UserID) != nil {
		p.UserID = ""
	}
	if p.Amount < 1 || p.Amount > MaxPaymentAmount || !ValidCurrency(p.Currency) {
		p.Amount, p.Currency = 0, ""
	}
	return p
}

// PaymentDecision is what a payment does to its order.
type PaymentDecision struct {
	Outcome PaymentOutcome
	Reason  PaymentReason
	Detail  string
	Becomes OrderStatus // what the order becomes; empty where it stays as it is
}

// Refusal refuses a payment. The words are cut to fit.
func Refusal(reason PaymentReason, format string, args ...any) PaymentDecision {
	detail := fmt.Sprintf(format, args...)
	if len(detail) > maxPaymentDetail {
		detail = detail[:maxPaymentDetail]
		for !utf8.ValidString(detail) {
			detail = detail[:len(detail)-1]
		}
	}
	return PaymentDecision{Outcome: PaymentRefused, Reason: reason, Detail: detail}
}

// Decide says what a payment does to an order as it is now. Whoever applies it must hold the order's row since it was read:
// then of a payment, a cancellation and an expiry that race exactly one finds the order waiting.
func (p *Payment) Decide(sale *Sale, order *Order) PaymentDecision {
	if p.UserID != "" && p.UserID != order.UserID {
		return Refusal(ReasonForeignOrder, "there is no such order of this buyer in this sale")
	}
	if due := sale.PriceOf(order.Quantity); due > 0 && p.Amount > 0 && (p.Amount != due || p.Currency != sale.Currency) {
		return Refusal(ReasonAmountMismatch, "the order costs %d %s, and %d %s were paid", due, sale.Currency, p.Amount, p.Currency)
	}
	back := func(reason PaymentReason, becomes OrderStatus, detail string) PaymentDecision {
		return PaymentDecision{Outcome: PaymentRefundDue, Reason: reason, Detail: detail, Becomes: becomes}
	}
	switch order.Status {
	case StatusAwaitingPayment:
		return PaymentDecision{Outcome: PaymentPaid, Becomes: StatusPaid}
	case StatusCancelled, StatusExpired, StatusRejected:
		return back(ReasonOrderEnded, StatusRefundDue, "the order was "+string(order.Status)+" when the money came; it is to be paid back")
	case StatusPaid:
		return back(ReasonAlreadyPaid, "", "the order is paid by another payment; this one is to be paid back")
	case StatusRefundDue:
		return back(ReasonNothingDue, "", "the order has ended, and another payment for it is to be paid back as well")
	default: // confirmed; queued orders have no row
		return back(ReasonNoPaymentDue, "", "the sale asks for no payment; it is to be paid back")
	}
}

// PaymentRecord is what the store made of a payment.
type PaymentRecord struct {
	Payment  Payment // as it is stored; its Outcome is empty when nothing was stored
	Order    Order   // as it is now; zero where no order was looked at
	Changed  bool    // the order was changed by this very call
	Replayed bool    // the same webhook was recorded before; Payment is what became of it
}

// WaitingPayment is what the job needs to know of a payment that waits for its order.
type WaitingPayment struct {
	ID         int64
	SaleID     string
	ReceivedAt time.Time
	Stored     bool // its order is in Postgres
}

// PaymentsFilter chooses payments. The zero value means all, from the first one on.
type PaymentsFilter struct {
	After   int64 // only payments with a greater id: the last one of the page before
	SaleID  string
	OrderID string         // only of this order; a UUID, or what is none and has no payments
	Outcome PaymentOutcome // only with this outcome
	Limit   int            // at most so many; 0 or more than MaxPayments means MaxPayments
}

// MaxPayments bounds a page of payments: each has up to 1.5 KB of text.
const MaxPayments = 500

// WebhookActor is who tells of a payment when the provider does. What operators tell goes to the audit log as well.
const WebhookActor = "webhook"
