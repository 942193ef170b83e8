package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline/payments"
)

// refundView answers a webhook about a refund that was recorded.
type refundView struct {
	Outcome        string `json:"outcome"`
	RefundID       string `json:"refund_id"`
	PaymentID      string `json:"payment_id"`
	RefundedAmount int64  `json:"refunded_amount,omitempty"` // by this refund
	Currency       string `json:"currency,omitempty"`
}

// takeRefund answers a webhook that says that money was paid back. Its signature is verified.
func (a *api) takeRefund(c echo.Context, data json.RawMessage) error {
	refund, wrong := readRefund(data)
	refund.WebhookID, refund.Actor = c.Request().Header.Get(standardwebhooks.HeaderWebhookID), payments.WebhookActor
	if wrong == nil {
		wrong = checkWebhookID(refund.WebhookID)
	}
	ctx := c.Request().Context()
	var record payments.RefundRecord
	var err error
	if wrong != nil {
		record, err = a.Payments.RefuseRefund(ctx, refund, payments.Refusal(payments.ReasonInvalid, "%s", wrong.Error()))
	} else {
		record, err = a.Payments.Refunded(ctx, refund)
	}
	if err != nil {
		return err
	}
	if !sameRefund(&refund, &record.Refund) {
		return webhookReused(refund.WebhookID)
	}
	return sendRefund(c, &record.Refund)
}

// sameRefund is samePayment for refunds.
func sameRefund(webhook, recorded *payments.Refund) bool {
	given := webhook.Readable()
	return given.RefundID == recorded.RefundID && given.PaymentID == recorded.PaymentID &&
		given.Amount == recorded.Amount && given.Currency == recorded.Currency && given.Partial == recorded.Partial
}

// readRefund reads the data of a refund. It returns what could be read also beside an error, which is a fieldError.
func readRefund(data json.RawMessage) (payments.Refund, error) {
	var r payments.Refund
	err := pick("data", data, map[string]any{
		"refund_id": &r.RefundID, "payment_id": &r.PaymentID, "amount": &r.Amount, "currency": &r.Currency,
		"partial": &r.Partial,
	}, "refund_id", "payment_id", "amount", "currency")
	if err == nil && r.Amount == 0 && r.Currency == "" { // only an operator may leave them out
		return r, fieldError{"amount", "0 minor units are no refund"}
	}
	return r, err
}

// sendRefund answers by what is recorded alone, so that a webhook that is repeated gets the same answer.
func sendRefund(c echo.Context, r *payments.Refund) error {
	if r.Outcome != payments.Refused {
		return sendJSON(c, http.StatusOK, refundView{
			Outcome: string(r.Outcome), RefundID: r.RefundID, PaymentID: r.PaymentID, RefundedAmount: r.Amount,
			Currency: r.Currency,
		})
	}
	switch r.Reason {
	case payments.ReasonInvalid:
		return invalidWebhook(r.Detail)
	case payments.ReasonUnknownPayment:
		return newProblem(codeUnknownPayment, r.Detail)
	case payments.ReasonAmountMismatch:
		return newProblem(codeAmountMismatch, r.Detail)
	default:
		return newProblem(codeRefundRefused, r.Detail)
	}
}
