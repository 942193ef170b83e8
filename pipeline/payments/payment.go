package payments

import (
	"time"

	"github.com/google/uuid"

	"sluice/pipeline"
)

// Limits of a payment.
const (
	MaxAmount        = 1_000_000_000_000 // minor units: pipeline.MaxUnitPrice times MaxQuantityLimit
	MaxIDBytes       = 255               // a provider's id of a payment, or of a message about one
	maxPaymentDetail = 500               // bytes of the text about a refused one
)

// Payment is a payment that was reported to us, and what became of it.
type Payment struct {
	ID          int64
	WebhookID   string // of the message; empty when an operator reports it
	PaymentID   string // the provider's id of the payment; reporting it twice is reporting it once
	SaleID      string
	OrderID     string
	UserID      string // who paid, where the provider says so; empty otherwise
	Amount      int64  // minor units of Currency; 0 where an operator gives none
	Currency    string // ISO 4217; empty where Amount is 0
	Outcome     Outcome
	Reason      Reason
	Detail      string               // the reason in words
	OrderStatus pipeline.OrderStatus // of the order when this was decided; empty where there is none
	Actor       string               // who reported it
	ReceivedAt  time.Time
	DecidedAt   time.Time // zero while it waits

	RefundedAmount int64     // what was paid back until now, in minor units of Currency
	RefundedAt     time.Time // when all of it was; zero before

	// Second says that this is money beside the payment that the order has. An operator must say so: one who
	// notes once more that an order is paid means the same money. A provider names the money. It is not stored.
	Second bool
}

// Validate returns a KindInvalid error that names the first field that breaks a rule.
func (p *Payment) Validate() error {
	id, err := uuid.Parse(p.OrderID)
	switch {
	case !ValidID(p.PaymentID):
		return pipeline.Errorf(
			pipeline.KindInvalid, "payment_id: use 1 to %d printable ASCII characters without spaces", MaxIDBytes,
		)
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

// ValidID reports whether an id can name a payment, or a message about one: 1 to MaxIDBytes printable ASCII characters
// without spaces.
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
	if id, err := uuid.Parse(p.OrderID); err != nil ||
		id.String() != p.OrderID { // Parse takes forms that Postgres does not
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

// Record is what the store made of a payment.
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

// Filter chooses payments. The zero value means all, from the first one on.
type Filter struct {
	After   int64 // only payments with a greater id: the last one of the page before
	SaleID  string
	OrderID string  // only of this order; a UUID, or what is none and has no payments
	Outcome Outcome // only with this outcome
	Limit   int     // at most so many; 0 or more than MaxPayments means MaxPayments
}

// MaxPayments bounds a page of payments: each has up to 1.5 KB of text.
const MaxPayments = 500

// WebhookActor is who reports a payment when the provider does. What operators report is in the audit log as well.
const WebhookActor = "webhook"
