package config

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Limits of webhook secrets. The numbers of bytes are those of the Standard Webhooks specification: fewer can be
// guessed.
const (
	webhookSecretPrefix   = "whsec_"
	minWebhookSecretBytes = 24
	maxWebhookSecretBytes = 64
	maxWebhookSecrets     = 8 // each costs a hash per message
)

// webhookSecrets parses one or several secrets. Its error counts them, and never repeats one.
func webhookSecrets(into *[]string) func(string) error {
	return func(text string) error {
		secrets := strings.Fields(text)
		if len(secrets) == 0 || len(secrets) > maxWebhookSecrets {
			return fmt.Errorf("it has %d secrets: use 1 to %d, with spaces between", len(secrets), maxWebhookSecrets)
		}
		for i, secret := range secrets {
			encoded, ok := strings.CutPrefix(secret, webhookSecretPrefix)
			key, err := base64.StdEncoding.DecodeString(encoded)
			if !ok || err != nil || len(key) < minWebhookSecretBytes || len(key) > maxWebhookSecretBytes {
				return fmt.Errorf("secret %d is not %s and the base64 of %d to %d bytes; "+
					"make one with: echo %[2]s$(openssl rand -base64 32)",
					i+1, webhookSecretPrefix, minWebhookSecretBytes, maxWebhookSecretBytes)
			}
		}
		*into = secrets
		return nil
	}
}
