package buyers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What becomes of a payment, by the answer to the provider.
const (
	PaymentPaid      = "paid"
	PaymentRefundDue = "refund_due"
	PaymentWaiting   = "waiting"
	PaymentRepeated  = "repeated"
	paymentRefused   = "amount-mismatch"
	paymentForged    = "invalid-signature"
)

// What the ids of payments that must change nothing end with.
const (
	suffixWrong  = "-wrong"
	suffixForged = "-forged"
)

const wrongBy = 1 // minor units that a wrong amount lacks

// Provider reports payments to the API, as a payment provider does: by signed webhooks, and again until it has an
// answer.
type Provider struct {
	Client   *Client
	Sale     string
	Price    int // of a unit, in minor units
	Currency string
	Secret   string // to sign with
}

// NewSecret makes a webhook secret of 256 bits.
func NewSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}

// payment is one webhook about one payment.
type payment struct {
	webhookID, paymentID string
	user, order          string
	amount               int
}

func (p *Provider) payment(buyer uint32, order string) payment {
	return payment{"msg-" + order, "pay-" + order, UserOf(buyer), order, p.Price}
}

// Pay reports the right amount for an order.
func (p *Provider) Pay(ctx context.Context, buyer uint32, order string) {
	p.send(ctx, p.payment(buyer, order), p.Client.History.notePaid)
}

// PayAgain reports the same payment under another webhook-id.
func (p *Provider) PayAgain(ctx context.Context, buyer uint32, order string) {
	one := p.payment(buyer, order)
	one.webhookID += "-again"
	p.send(ctx, one, p.Client.History.notePaidAgain)
}

// PayWrong reports another amount than that of the order.
func (p *Provider) PayWrong(ctx context.Context, buyer uint32, order string) {
	one := p.payment(buyer, order)
	one.webhookID, one.paymentID, one.amount = one.webhookID+suffixWrong, one.paymentID+suffixWrong, one.amount-wrongBy
	p.send(ctx, one, func(order string, a Answer) { p.Client.History.noteBadPayment(order, false, a) })
}

// Forge reports a payment, signed with another secret.
func (p *Provider) Forge(ctx context.Context, buyer uint32, order string) {
	forger := *p
	forger.Secret = NewSecret()
	one := p.payment(buyer, order)
	one.webhookID, one.paymentID = one.webhookID+suffixForged, one.paymentID+suffixForged
	forger.send(ctx, one, func(order string, a Answer) { p.Client.History.noteBadPayment(order, true, a) })
}

// send sends a webhook until it has an answer that says yes or no. Each attempt is signed anew.
func (p *Provider) send(ctx context.Context, one payment, note func(order string, a Answer)) {
	a, err := p.post(ctx, one)
	switch {
	case err == nil:
		note(one.order, a)
	case ctx.Err() == nil:
		p.Client.History.Strangef("a payment of order %s: %v", one.order, err)
	}
}

func (p *Provider) post(ctx context.Context, one payment) (Answer, error) {
	body, err := json.Marshal(map[string]any{
		"type": "payment.succeeded",
		"data": map[string]any{
			"payment_id": one.paymentID, "sale_id": p.Sale, "order_id": one.order, "user_id": one.user,
			"amount": one.amount, "currency": p.Currency,
		},
	})
	if err != nil {
		return Answer{}, err
	}
	signer, err := standardwebhooks.NewWebhook(p.Secret)
	if err != nil {
		return Answer{}, err
	}
	return p.Client.insist(ctx, func(ctx context.Context) (*http.Request, error) {
		url := p.Client.opts.APIs[0] + "/v1/webhooks/payments"
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		now := time.Now()
		signature, err := signer.Sign(one.webhookID, now, body)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(standardwebhooks.HeaderWebhookID, one.webhookID)
		request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
		return request, nil
	})
}

// settled is what was answered about one order after it was accepted: to its buyer and to the payment provider.
type settled struct {
	money     string // what became of the right amount: paid, waiting or refund_due; empty: nobody sent it
	answer    string // the body of that answer
	answers   int
	bad       bool // a wrong amount or a forged payment came
	cancelled bool
}

// settledOf needs mu.
func (h *History) settledOf(order string) *settled {
	if h.settled[order] == nil {
		h.settled[order] = &settled{}
	}
	return h.settled[order]
}

// Payments counts the answers to the provider, by outcome or code.
func (h *History) Payments() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.payments)
}

func (h *History) notePaid(order string, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	money := moneyOf(a)
	h.payments[money]++
	if money != PaymentPaid && money != PaymentWaiting && money != PaymentRefundDue {
		h.strangef("the payment of order %s was answered by %d %.200s", order, a.Status, a.Body)
		return
	}
	s := h.settledOf(order)
	if s.answers++; s.answers > 1 {
		h.repeated++
	}
	switch {
	case s.money == "" || s.money == PaymentWaiting && money != PaymentWaiting:
		s.money, s.answer = money, a.Body // the answer to one that waited says what became of it
	case money == PaymentWaiting: // it was, at the moment of this answer
	case a.Body != s.answer:
		h.otherAnswers = append(h.otherAnswers, order)
	}
}

func (h *History) notePaidAgain(order string, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.payments[moneyOf(a)]++
	if a.Payment != PaymentRepeated {
		h.otherAnswers = append(h.otherAnswers, order)
	}
}

// noteBadPayment is about money that must change nothing.
func (h *History) noteBadPayment(order string, forged bool, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.payments[moneyOf(a)]++
	h.settledOf(order).bad = true
	if forged && a.Code != paymentForged {
		h.strangef("a forged payment of order %s was answered by %d %.200s", order, a.Status, a.Body)
	}
}

// moneyOf is what became of a payment, or the code of the problem.
func moneyOf(a Answer) string {
	if a.Payment != "" {
		return a.Payment
	}
	return a.Code
}
