package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline/payments"
)

// webhookChallenge says how to sign (RFC 9110, section 11.6.1, asks for a challenge with every 401).
const webhookChallenge = `Standard-Webhooks headers="webhook-id webhook-timestamp webhook-signature"`

// webhookKeys verify webhooks by the Standard Webhooks specification: HMAC-SHA256 over id, time and the body as it
// came, within five minutes of now. Any of them is accepted, so that a secret can be replaced without losing a message.
type webhookKeys []*standardwebhooks.Webhook

// newWebhookKeys takes secrets of the form whsec_…; what their bytes must be is checked where settings are read.
func newWebhookKeys(secrets []string) (webhookKeys, error) {
	var keys webhookKeys
	for i, secret := range secrets {
		key, err := standardwebhooks.NewWebhook(secret)
		if err != nil || secret == "" {
			return nil, fmt.Errorf("webhook secret %d is not base64", i+1) // the error could quote it
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// verify returns the error in a webhook's signature, or nil, and the outcome under which it is counted.
func (k webhookKeys) verify(body []byte, h http.Header) (payments.Outcome, error) {
	err := standardwebhooks.ErrNoMatchingSignature
	for _, key := range k {
		if err = key.Verify(body, h); err == nil {
			return "", nil
		}
	}
	counted, detail := payments.Forged, "the webhook-signature is not that of this body, id and time under our secret"
	switch {
	case errors.Is(err, standardwebhooks.ErrMessageTooOld):
		counted, detail = payments.Stale, "the webhook-timestamp is more than 5 minutes ago: sign the message again when you send it"
	case errors.Is(err, standardwebhooks.ErrMessageTooNew):
		counted, detail = payments.Stale, "the webhook-timestamp is more than 5 minutes ahead: set your clock"
	case errors.Is(err, standardwebhooks.ErrRequiredHeaders):
		detail = "send the headers webhook-id, webhook-timestamp and webhook-signature"
	case errors.Is(err, standardwebhooks.ErrInvalidHeaders):
		detail = "the webhook-timestamp is not a number of seconds"
	}
	p := newProblem(codeInvalidSignature, detail)
	p.challenge = webhookChallenge
	return counted, p
}
