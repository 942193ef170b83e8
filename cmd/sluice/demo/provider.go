package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What a unit costs, in minor units.
const (
	unitPrice = 1999
	currency  = "EUR"
)

// provider tells the API of payments, as a payment provider does: by signed webhooks, and again until it has an answer.
type provider struct {
	client *client
	url    string
	secret string // what it signs with
}

// newSecret makes a webhook secret of 256 bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}

// message is one webhook about one payment.
type message struct {
	webhookID string
	paymentID string
	user      string
	orderID   string
	amount    int
}

// messageOf tells that an order was paid with the right amount.
func messageOf(p pledge) message {
	return message{
		webhookID: "msg-" + p.orderID, paymentID: "pay-" + p.orderID, user: (ask{buyer: p.buyer}).user(),
		orderID: p.orderID, amount: unitPrice,
	}
}

func (m message) body() ([]byte, error) {
	return json.Marshal(map[string]any{
		"type": "payment.succeeded",
		"data": map[string]any{
			"payment_id": m.paymentID, "sale_id": saleID, "order_id": m.orderID, "user_id": m.user,
			"amount": m.amount, "currency": currency,
		},
	})
}

// tell sends a webhook until it has an answer that says yes or no. Each try is signed anew.
func (p *provider) tell(ctx context.Context, m message) (reply, error) {
	body, err := m.body()
	if err != nil {
		return reply{}, err
	}
	signer, err := standardwebhooks.NewWebhook(p.secret)
	if err != nil {
		return reply{}, err
	}
	return p.client.insist(ctx, func(ctx context.Context) (*http.Request, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		now := time.Now()
		signature, err := signer.Sign(m.webhookID, now, body)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(standardwebhooks.HeaderWebhookID, m.webhookID)
		request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
		return request, nil
	})
}
