package payments

import (
	"fmt"
	"strconv"
	"time"

	"sluice/pipeline"
)

// Refund is money that was paid back, as the provider or an operator reports it, and what became of the report.
type Refund struct {
	ID         int64
	WebhookID  string // of the message; empty when an operator reports it
	RefundID   string // the provider's id of the refund; reporting it twice is reporting it once
	Payment    int64  // which payment it is of; a provider, which does not know this id, gives PaymentID alone
	PaymentID  string // the provider's id of the payment
	Amount     int64  // minor units of Currency; 0 where an operator gives none: all that is left
	Currency   string // ISO 4217; empty where Amount is 0
	Partial    bool   // it is less than all that is left, and that is meant
	Outcome    Outcome
	Reason     Reason
	Detail     string // the reason in words
	Note       string // an operator's
	Actor      string // who reported it
	ReceivedAt time.Time
}

// Validate returns a KindInvalid error that names the first field that breaks a rule.
func (r *Refund) Validate() error {
	switch {
	case !ValidID(r.RefundID):
		return pipeline.Errorf(
			pipeline.KindInvalid, "refund_id: use 1 to %d printable ASCII characters without spaces", MaxIDBytes,
		)
	case r.Payment == 0 && !ValidID(r.PaymentID):
		return pipeline.Errorf(
			pipeline.KindInvalid, "payment_id: use 1 to %d printable ASCII characters without spaces", MaxIDBytes,
		)
	case r.Note != "" && pipeline.ValidateReason(r.Note) != nil:
		return pipeline.Errorf(
			pipeline.KindInvalid, "note: use at most %d bytes of UTF-8 without control characters", pipeline.MaxNoteBytes,
		)
	case r.Amount == 0 && r.Currency == "" && r.Partial:
		return pipeline.Errorf(pipeline.KindInvalid, "amount: a partial refund needs one, and its currency")
	case r.Amount == 0 && r.Currency == "":
		return nil
	case r.Amount < 1 || r.Amount > MaxAmount:
		return pipeline.Errorf(pipeline.KindInvalid, "amount: %d is not from 1 to %d minor units", r.Amount, int64(MaxAmount))
	case !pipeline.ValidCurrency(r.Currency):
		return pipeline.Errorf(pipeline.KindInvalid, "currency: use three capital letters (ISO 4217)")
	}
	return nil
}

// ManualRefundID is the id of the refund of a payment that an operator reports without one, so that repeating the
// report changes nothing. A second refund of the same payment needs an id of its own.
func ManualRefundID(payment int64) string { return "manual-" + strconv.FormatInt(payment, 10) }

// ValidateByHand is Validate, and refuses a partial refund without an id of its own: the next one would be taken for a
// repetition of it.
func (r *Refund) ValidateByHand() error {
	if r.Partial && r.RefundID == ManualRefundID(r.Payment) {
		return pipeline.Errorf(pipeline.KindInvalid, "refund_id: a partial refund needs the provider's id of it")
	}
	return r.Validate()
}

// Readable leaves out of a refund whatever no table could keep, so that one which is refused for it can be recorded.
func (r Refund) Readable() Refund {
	if !ValidID(r.WebhookID) {
		r.WebhookID = ""
	}
	if !ValidID(r.RefundID) {
		r.RefundID = ""
	}
	if !ValidID(r.PaymentID) {
		r.PaymentID = ""
	}
	if r.Amount < 1 || r.Amount > MaxAmount || !pipeline.ValidCurrency(r.Currency) {
		r.Amount, r.Currency = 0, ""
	}
	return r
}

// Decide says what a refund does to its payment as it is now, whose row the caller must have locked. A refund without
// an amount is of all that is left: Decide sets it.
func (r *Refund) Decide(p *Payment) Decision {
	switch {
	case p.Outcome == Refunded:
		return Refusal(ReasonAlreadyRefunded, "all of payment %s was paid back before, by another refund", p.PaymentID)
	case p.Outcome != RefundDue:
		return Refusal(ReasonNoRefundDue, "payment %s pays its order; return the order first (sluice order return), and "+
			"then report this refund of it by hand (sluice payment refunded)", p.PaymentID)
	}
	left := p.Amount - p.RefundedAmount
	if r.Amount == 0 && p.Amount > 0 {
		r.Amount, r.Currency = left, p.Currency
	}
	switch {
	case p.Amount == 0 && r.Partial:
		return Refusal(ReasonAmountMismatch, "how much payment %s was is not known, so no refund of it is partial", p.PaymentID)
	case p.Amount == 0 || r.Amount == left && r.Currency == p.Currency:
		return Decision{Outcome: Refunded}
	case r.Amount < left && r.Currency == p.Currency && r.Partial:
		return Decision{Outcome: PartiallyRefunded}
	}
	detail := fmt.Sprintf("%s of payment %s are to be paid back, and %s were",
		MoneyText(left, p.Currency), p.PaymentID, MoneyText(r.Amount, r.Currency))
	if r.Amount < left && r.Currency == p.Currency {
		detail += "; a partial refund must be reported as partial, and leaves the rest due"
	}
	return Refusal(ReasonAmountMismatch, "%s", detail)
}

// SameAs reports whether two reports are of the same refund: a repetition may leave the amount out.
func (r *Refund) SameAs(known *Refund) bool {
	samePayment := r.Payment == known.Payment || r.Payment == 0 && r.PaymentID == known.PaymentID
	sameAmount := r.Amount == known.Amount && r.Currency == known.Currency || r.Amount == 0 || known.Amount == 0
	return samePayment && sameAmount
}

// RefundRecord is what the store made of a refund.
type RefundRecord struct {
	Refund   Refund         // as it is stored, or was before
	Payment  Payment        // as it is now; zero where there is none
	Order    pipeline.Order // as it is now; zero where it did not change
	Changed  bool           // the order was changed by this very call
	Replayed bool           // the same webhook was recorded before; Refund is what became of it
}
