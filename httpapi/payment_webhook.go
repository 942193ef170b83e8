package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline/payments"
)

// The types of webhooks that mean something here. All others are acknowledged and ignored.
const (
	paymentSucceeded = "payment.succeeded"
	paymentRefunded  = "payment.refunded"
)

// paymentView answers a webhook that was recorded, or ignored.
type paymentView struct {
	Outcome     string `json:"outcome"`
	Reason      string `json:"reason,omitempty"`
	Detail      string `json:"detail,omitempty"`
	PaymentID   string `json:"payment_id,omitempty"`
	SaleID      string `json:"sale_id,omitempty"`
	OrderID     string `json:"order_id,omitempty"`
	OrderStatus string `json:"order_status,omitempty"`
}

// takePayment answers POST /v1/webhooks/payments. Nothing but a counter is written before the signature of the body, as
// it was received, is verified; from then on every answer but a 503 is recorded first.
func (a *api) takePayment(c echo.Context) error {
	if a.WebhookSecrets == nil {
		return newProblem(codeWebhooksOff,
			"this api has no secret to verify webhooks with: set PAYMENT_WEBHOOK_SECRET and start it again")
	}
	body, err := a.readWebhook(c)
	if err != nil {
		return err
	}
	kind, data, wrong := readEvent(body)
	switch {
	case wrong == nil && kind == paymentRefunded:
		return a.takeRefund(c, data)
	case wrong == nil && kind != paymentSucceeded:
		a.Payments.Count(payments.Ignored)
		return sendPayment(c, &payments.Payment{Outcome: payments.Ignored})
	}
	var payment payments.Payment
	if wrong == nil {
		payment, wrong = readPayment(data)
	}
	payment.WebhookID, payment.Actor = c.Request().Header.Get(standardwebhooks.HeaderWebhookID), payments.WebhookActor
	if wrong == nil {
		wrong = checkWebhookID(payment.WebhookID)
	}
	ctx := c.Request().Context()
	var recorded payments.Payment
	if wrong != nil {
		recorded, err = a.Payments.Refuse(ctx, payment, payments.Refusal(payments.ReasonInvalid, "%s", wrong.Error()))
	} else {
		recorded, err = a.Payments.Pay(ctx, payment)
	}
	if err != nil {
		return err
	}
	if !samePayment(&payment, &recorded) {
		return webhookReused(payment.WebhookID)
	}
	return sendPayment(c, &recorded)
}

// samePayment reports whether what is recorded under a webhook's id is what the webhook says, as far as it is kept.
func samePayment(webhook, recorded *payments.Payment) bool {
	given := webhook.Readable()
	return given.PaymentID == recorded.PaymentID && given.SaleID == recorded.SaleID && given.OrderID == recorded.OrderID &&
		given.Amount == recorded.Amount && given.Currency == recorded.Currency
}

// webhookReused refuses a message whose id belongs to another one: which of the two was meant, nothing can tell.
func webhookReused(id string) error {
	return newProblem(codeIdempotencyKeyReused,
		"the webhook-id "+id+" was used before, for a message that says something else; give each message an id of its own")
}

// readWebhook returns the body of a webhook with the right signature. What is cheap comes first: a client that sent too
// many wrong ones, and headers that can't be right, cost no body.
func (a *api) readWebhook(c echo.Context) ([]byte, error) {
	r := c.Request()
	if err := a.guard.peekWebhook(r); err != nil {
		return nil, err
	}
	keys := a.WebhookSecrets.current()
	counted, err := keys.verifyHeaders(r.Header)
	var body []byte
	if err == nil {
		counted = payments.Oversized
		if body, err = readBody(c, maxBodyBytes); err != nil {
			if _, oversized := errors.AsType[*problem](err); !oversized {
				return nil, err
			}
		}
	}
	if err == nil {
		counted, err = keys.verify(body, r.Header)
	}
	if err == nil {
		return body, nil
	}
	a.Payments.Count(counted)
	a.guard.chargeWebhook(r)
	return nil, err
}

func checkWebhookID(id string) error {
	if payments.ValidID(id) {
		return nil
	}
	return fieldError{standardwebhooks.HeaderWebhookID, "use 1 to 255 printable ASCII characters without spaces"}
}

// readEvent reads {"type":…,"data":{…}}. Fields that are not known are ignored: providers add them.
func readEvent(body []byte) (kind string, data json.RawMessage, err error) {
	err = pick(fieldBody, body, map[string]any{"type": &kind, "data": &data}, "type")
	if err == nil && data == nil && (kind == paymentSucceeded || kind == paymentRefunded) {
		err = fieldError{"data", "it is missing"}
	}
	return kind, data, err
}

// readPayment reads the data of a payment. It returns what could be read also beside an error, which is a fieldError.
func readPayment(data json.RawMessage) (payments.Payment, error) {
	var p payments.Payment
	err := pick("data", data, map[string]any{
		"payment_id": &p.PaymentID, "sale_id": &p.SaleID, "order_id": &p.OrderID, "user_id": &p.UserID,
		"amount": &p.Amount, "currency": &p.Currency,
	}, "payment_id", "sale_id", "order_id", "amount", "currency")
	if id, err := uuid.Parse(p.OrderID); err == nil && len(p.OrderID) == len(uuid.Nil.String()) {
		p.OrderID = id.String()
	}
	if err != nil {
		return p, err
	}
	// only an operator may leave them out; all other rules are those of the pipeline
	if p.Amount == 0 && p.Currency == "" {
		return p, fieldError{"amount", "0 minor units are no payment"}
	}
	return p, nil
}

// pick reads the wanted members of an object, each at most once, and refuses an object without the required ones.
func pick(field string, object []byte, into map[string]any, required ...string) error {
	members, err := membersOf(object, notObject(field))
	if err != nil {
		return err
	}
	given := map[string]bool{}
	var wrong error
	for _, m := range members {
		target, wanted := into[m.name]
		if !wanted {
			continue
		}
		given[m.name] = true
		if raw, ok := target.(*json.RawMessage); ok {
			*raw = m.value
		} else if err := readField(m, target); err != nil && wrong == nil {
			wrong = err // and go on: what can be read goes into the record
		}
	}
	for _, name := range required {
		if !given[name] && wrong == nil {
			wrong = fieldError{name, "it is missing"}
		}
	}
	return wrong
}

// refusals are the codes of what was refused; all other reasons go with money that was taken.
var refusals = map[payments.Reason]problemCode{
	payments.ReasonInvalid:        codeInvalidRequest,
	payments.ReasonUnknownSale:    codeUnknownSale,
	payments.ReasonUnknownOrder:   codeUnknownOrder,
	payments.ReasonOrderDropped:   codeUnknownOrder,
	payments.ReasonForeignOrder:   codeUnknownOrder,
	payments.ReasonAmountMismatch: codeAmountMismatch,
	payments.ReasonPaymentReused:  codePaymentReused,
}

// sendPayment answers by what is recorded alone, so that a webhook that is repeated gets the same answer.
func sendPayment(c echo.Context, p *payments.Payment) error {
	if p.Outcome == payments.Refused {
		return refusedPayment(p)
	}
	status := http.StatusOK
	if p.Outcome == payments.Waiting {
		status = http.StatusAccepted
	}
	return sendJSON(c, status, paymentView{
		Outcome: string(p.Outcome), Reason: string(p.Reason), Detail: p.Detail, PaymentID: p.PaymentID, SaleID: p.SaleID,
		OrderID: p.OrderID, OrderStatus: string(p.OrderStatus),
	})
}

func refusedPayment(p *payments.Payment) error {
	if p.Reason == payments.ReasonInvalid {
		return invalidWebhook(p.Detail)
	}
	answer := newProblem(refusals[p.Reason], p.Detail)
	if p.Reason == payments.ReasonAmountMismatch {
		answer.OrderID, answer.OrderStatus = p.OrderID, string(p.OrderStatus)
	}
	return answer
}

// invalidWebhook makes the error of the field that a recorded detail begins with.
func invalidWebhook(text string) error {
	field, detail, found := strings.Cut(text, ": ")
	if !found {
		field, detail = fieldBody, text
	}
	return invalid(fieldError{field, detail})
}
