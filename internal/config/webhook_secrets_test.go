package config_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"sluice/internal/config"
)

func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	const one, two = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDAAAAAAAAAAA="
	for text, want := range map[string][]string{one: {one}, " " + two + "  " + one + "\n": {two, one}, "": nil} {
		c, err := config.Load(config.API, nil, env(map[string]string{"PAYMENT_WEBHOOK_SECRET": text}), io.Discard)
		if err != nil || !slices.Equal(c.WebhookSecrets, want) {
			t.Errorf("got %d secrets, %v, want %d", len(c.WebhookSecrets), err, len(want))
		}
	}
	for _, text := range []string{
		" ", "hunter2", "whsec_", "whsec_hunter2", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", one + "=", "whsec_aHVudGVyMg==",
		one + " whsec_hunter2", strings.Repeat(one+" ", 9), "whsec_" + strings.Repeat("hunter2A", 11),
	} {
		_, err := config.Load(config.API, nil, env(map[string]string{"PAYMENT_WEBHOOK_SECRET": text}), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "PAYMENT_WEBHOOK_SECRET") {
			t.Errorf("%q: got %v, want it refused by name", text, err)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "MfKQ9r8") {
			t.Errorf("the error contains a secret: %v", err)
		}
	}
}
