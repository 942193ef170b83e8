package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/pipeline/payments"
)

// webhookChallenge says how to sign (RFC 9110, section 11.6.1, asks for a challenge with every 401).
const webhookChallenge = `Standard-Webhooks headers="webhook-id webhook-timestamp webhook-signature"`

// webhookKeys verify webhooks by the Standard Webhooks specification: HMAC-SHA256 over id, time and the body as it
// came, within five minutes of now. Any of them is accepted, so that a secret can be replaced without losing a message.
type webhookKeys []*standardwebhooks.Webhook

// WebhookSecrets are what webhooks of payments are signed with. They can be replaced while webhooks arrive.
type WebhookSecrets struct{ keys atomic.Pointer[webhookKeys] }

// NewWebhookSecrets takes one secret or several of the form whsec_…. Its error repeats none.
func NewWebhookSecrets(secrets []string) (*WebhookSecrets, error) {
	s := &WebhookSecrets{}
	return s, s.Replace(secrets)
}

// Replace makes these the only secrets. Its error repeats none, and leaves those before in force.
func (s *WebhookSecrets) Replace(secrets []string) error {
	keys, err := newWebhookKeys(secrets)
	if err == nil {
		s.keys.Store(&keys)
	}
	return err
}

func (s *WebhookSecrets) current() webhookKeys { return *s.keys.Load() }

// newWebhookKeys takes secrets of the form whsec_…; what their bytes must be is checked where settings are read.
func newWebhookKeys(secrets []string) (webhookKeys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there is no webhook secret")
	}
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

// verifyHeaders returns the error in the headers of a webhook whose body is not read yet, as verify does.
func (k webhookKeys) verifyHeaders(h http.Header) (payments.Outcome, error) {
	err := k[0].Verify(nil, h)
	if err == nil || errors.Is(err, standardwebhooks.ErrNoMatchingSignature) {
		return "", nil // the library looks at the signature last
	}
	return unsigned(err)
}

// verify returns the error in a webhook's signature, or nil, and the outcome under which it is counted.
func (k webhookKeys) verify(body []byte, h http.Header) (payments.Outcome, error) {
	err := standardwebhooks.ErrNoMatchingSignature
	for _, key := range k {
		if err = key.Verify(body, h); err == nil {
			return "", nil
		}
	}
	return unsigned(err)
}

func unsigned(err error) (payments.Outcome, error) {
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
