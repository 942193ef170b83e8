package process_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// replaceFile replaces a file at once, as what mounts secrets does.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestSecretsAreReplacedWithoutARestart: a new token counts as soon as its file has it, the old one no more; what can't
// be a token changes nothing, and is said once, without the text.
func TestSecretsAreReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, secret := filepath.Join(dir, "token"), filepath.Join(dir, "webhook")
	replaceFile(t, token, adminToken+"\n")
	replaceFile(t, secret, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
	at, log := runAPIOn(t, testkit.PrivateRedis(t), "--admin-token-file", token, "--payment-webhook-secret-file", secret)
	answer := func(token string) int {
		status, _ := ask(t, "", at+"/admin/v1/endpoints", "Authorization", "Bearer "+token)
		return status
	}
	if got := answer(adminToken); got != http.StatusOK {
		t.Fatalf("the first token: got %d", got)
	}
	const second = "fedcba9876543210fedcba9876543210"
	replaceFile(t, token, second)
	testkit.Eventually(t, time.Minute, "the new token to count", func() bool { return answer(second) == http.StatusOK })
	if got := answer(adminToken); got != http.StatusUnauthorized {
		t.Errorf("the token before: got %d, want 401", got)
	}
	replaceFile(t, token, "guessable")
	replaceFile(t, secret, "whsec_guessable")
	testkit.Eventually(t, time.Minute, "both refusals", func() bool {
		_, metrics := ask(t, "", at+"/metrics")
		return strings.Contains(metrics, `sluice_secret_reloads_total{result="refused",setting="ADMIN_TOKEN"} 1`) &&
			strings.Contains(metrics, `sluice_secret_reloads_total{result="refused",setting="PAYMENT_WEBHOOK_SECRET"} 1`) &&
			strings.Contains(metrics, `sluice_secret_reloads_total{result="replaced",setting="ADMIN_TOKEN"} 1`)
	})
	if got := answer(second); got != http.StatusOK {
		t.Errorf("after a text that is no token: got %d, want 200", got)
	}
	if text := log.String(); strings.Contains(text, "guessable") || strings.Contains(text, second) ||
		!strings.Contains(text, "a changed secret can't be used") {
		t.Errorf("the log:\n%s", text)
	}
}
