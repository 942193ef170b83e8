package view

import (
	"strconv"

	"sluice/pipeline/payments"
)

// Payment is a payment that was reported, and what became of it.
type Payment struct {
	ID          string  `json:"id"`
	ReceivedAt  string  `json:"received_at"`
	DecidedAt   *string `json:"decided_at"` // null while it waits for its order
	Outcome     string  `json:"outcome"`
	Reason      *string `json:"reason"`          // why it was refused, or is to be paid back
	Detail      string  `json:"detail"`          // the reason in words
	PaymentID   string  `json:"payment_id"`      // "" where it could not be read, as with the next two
	SaleID      string  `json:"sale_id"`         //
	OrderID     string  `json:"order_id"`        //
	UserID      *string `json:"user_id"`         // who paid, where the provider says so
	Amount      *int64  `json:"amount"`          // minor units of currency; null where unknown
	Currency    *string `json:"currency"`        //
	Refunded    int64   `json:"refunded_amount"` // what was paid back until now
	RefundedAt  *string `json:"refunded_at"`     // when all of it was
	OrderStatus *string `json:"order_status"`    // of the order, when this was decided
	WebhookID   *string `json:"webhook_id"`      // null where an operator reported it
	Actor       string  `json:"actor"`
}

// NewPayment views a payment.
func NewPayment(p *payments.Payment) Payment {
	var amount *int64
	if p.Amount != 0 {
		amount = &p.Amount
	}
	return Payment{
		ID: strconv.FormatInt(p.ID,
			10), ReceivedAt: Time(p.ReceivedAt), DecidedAt: TimeOrNil(p.DecidedAt), Outcome: string(p.Outcome),
		Reason: textOrNil(string(p.Reason)), Detail: p.Detail, PaymentID: p.PaymentID, SaleID: p.SaleID, OrderID: p.OrderID,
		UserID: textOrNil(p.UserID), Amount: amount, Currency: textOrNil(p.Currency),
		OrderStatus: textOrNil(string(p.OrderStatus)), Refunded: p.RefundedAmount, RefundedAt: TimeOrNil(p.RefundedAt),
		WebhookID: textOrNil(p.WebhookID), Actor: p.Actor,
	}
}

// NewPayments views a list.
func NewPayments(list []payments.Payment) []Payment { return views(list, NewPayment) }

// Refund is a refund that was reported, and its payment as it is then.
type Refund struct {
	Outcome  string  `json:"outcome"` // refunded, partially_refunded, repeated
	RefundID string  `json:"refund_id"`
	Amount   *int64  `json:"amount"` // minor units of currency; null where it is not known
	Currency *string `json:"currency"`
	Payment  Payment `json:"payment"`
}

// NewRefund views a refund.
func NewRefund(r *payments.RefundRecord) Refund {
	var amount *int64
	if r.Refund.Amount != 0 {
		amount = &r.Refund.Amount
	}
	return Refund{
		Outcome: string(r.Refund.Outcome), RefundID: r.Refund.RefundID, Amount: amount,
		Currency: textOrNil(r.Refund.Currency), Payment: NewPayment(&r.Payment),
	}
}

// RefundReport is a report of a refund, as it is recorded.
type RefundReport struct {
	ID         string  `json:"id"`
	ReceivedAt string  `json:"received_at"`
	Outcome    string  `json:"outcome"`
	Reason     *string `json:"reason"` // why it was refused
	Detail     string  `json:"detail"` // the reason in words
	RefundID   string  `json:"refund_id"`
	Payment    *string `json:"payment"`    // the id of the payment; null where there is none
	PaymentID  string  `json:"payment_id"` // the provider's
	Amount     *int64  `json:"amount"`     // minor units of currency; null where it is not known
	Currency   *string `json:"currency"`
	Partial    bool    `json:"partial"`
	Note       string  `json:"note,omitempty"`
	WebhookID  *string `json:"webhook_id"` // null where an operator reported it
	Actor      string  `json:"actor"`
}

// NewRefundReport views a report.
func NewRefundReport(r *payments.Refund) RefundReport {
	v := RefundReport{
		ID: strconv.FormatInt(r.ID, 10), ReceivedAt: Time(r.ReceivedAt), Outcome: string(r.Outcome),
		Reason: textOrNil(string(r.Reason)), Detail: r.Detail, RefundID: r.RefundID, PaymentID: r.PaymentID,
		Currency: textOrNil(r.Currency), Partial: r.Partial, Note: r.Note, WebhookID: textOrNil(r.WebhookID), Actor: r.Actor,
	}
	if r.Amount != 0 {
		v.Amount = &r.Amount
	}
	if r.Payment != 0 {
		id := strconv.FormatInt(r.Payment, 10)
		v.Payment = &id
	}
	return v
}
