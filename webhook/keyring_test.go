package webhook_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/webhook"
)

const (
	oldKey = "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	newKey = "new:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

func keyring(t *testing.T, text string) *webhook.Keyring {
	t.Helper()
	keys, err := webhook.ParseKeyring(text)
	must(t, err)
	return keys
}

func TestParseKeyring(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": " ", "no name": oldKey[4:], "short": "k:AAEC", "not base64": "k:" + strings.Repeat("!", 44),
		"a name twice": oldKey + " " + oldKey, "a bad name": "K" + oldKey, "nine": strings.Repeat(oldKey+" ", 9),
	} {
		_, err := webhook.ParseKeyring(text)
		if pipeline.KindOf(err) != pipeline.KindInvalid || strings.Contains(err.Error(), "AAEC") {
			t.Errorf("%s: got %v, want an error that repeats no key", name, err)
		}
	}
}

// stored is what Postgres has of an endpoint's secrets.
func (r *rig) stored(id int64) (secret, previous string) {
	r.Helper()
	must(r, r.raw.QueryRow(r.Context(), `select secret, previous_secret from endpoints where id = $1`, id).
		Scan(&secret, &previous))
	return secret, previous
}

// with is what operators do where ENCRYPTION_KEYS has these keys.
func (r *rig) with(keys string) *webhook.EndpointService {
	r.Helper()
	return webhook.NewEndpointService(r.store.EndpointRegistry(), allowPrivate, keyring(r.T, keys))
}

// TestSecretsAreEncrypted: what is stored of a secret is of no use without its key, survives a change of keys, and is
// bound to the URL that it was made for.
func TestSecretsAreEncrypted(t *testing.T) {
	r := newRig(t)
	receiver := newReceiver(t)
	r.endpoints = r.with(oldKey)
	e := receiver.register(r)
	want := func(what string, service *webhook.EndpointService, outcome webhook.Outcome, says string) {
		t.Helper()
		got, err := service.Test(t.Context(), e.ID)
		must(t, err)
		if got.Outcome != outcome || !strings.Contains(got.Error, says) {
			t.Errorf("%s: got %s %q, want %s %q", what, got.Outcome, got.Error, outcome, says)
		}
	}
	secret, _ := r.stored(e.ID)
	if !strings.HasPrefix(secret, "enc2:old:") || strings.Contains(secret, strings.TrimPrefix(e.Secret, "whsec_")) {
		t.Errorf("stored: %q", secret)
	}
	want("the key", r.endpoints, webhook.Delivered, "")
	want("no key", webhook.NewEndpointService(r.store.EndpointRegistry(), allowPrivate, nil), webhook.Unsigned, "ENCRYPTION_KEYS does not have it")
	want("another key", r.with(newKey), webhook.Unsigned, "ENCRYPTION_KEYS does not have it")
	namesake := r.with(strings.Replace(newKey, "new", "old", 1))
	want("another key of this name", namesake, webhook.Unsigned, "can't be decrypted")

	both := r.with(newKey + " " + oldKey)
	want("both keys", both, webhook.Delivered, "")
	if n, err := both.Encrypt(t.Context(), "ann"); n != 1 || err != nil {
		t.Errorf("encrypt: got %d, %v, want 1", n, err)
	}
	if n, err := both.Encrypt(t.Context(), "ann"); n != 0 || err != nil {
		t.Errorf("encrypt again: got %d, %v, want 0", n, err)
	}
	want("the new key alone", r.with(newKey), webhook.Delivered, "")
	if _, err := r.with(oldKey).Encrypt(t.Context(), "ann"); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("encrypt without the key: got %v", err)
	}
	if _, err := webhook.NewEndpointService(r.store.EndpointRegistry(), allowPrivate, nil).Add(t.Context(), "ann",
		"https://example.com/plain", nil); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("a secret stored as it is beside encrypted ones: got %v", err)
	}
	r.exec(`update endpoints set url = url || '&changed=1'`)
	want("another URL", r.with(newKey), webhook.Unsigned, "URL was changed")
}

// TestSecretsAreEncryptedLater: secrets that were stored before there were keys work on, until they are encrypted.
func TestSecretsAreEncryptedLater(t *testing.T) {
	r := newRig(t)
	receiver := newReceiver(t)
	e := receiver.register(r)
	_, err := r.endpoints.Rotate(t.Context(), "ann", e.ID, time.Hour)
	must(t, err)
	if _, err := r.endpoints.Encrypt(t.Context(), "ann"); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("encrypt without keys: got %v", err)
	}
	later := r.with(newKey)
	for _, encrypted := range []bool{false, true} {
		if got, err := later.Test(t.Context(), e.ID); err != nil || got.Outcome != webhook.Delivered {
			t.Errorf("encrypted %t: got %+v, %v", encrypted, got, err)
		}
		_, err := later.Encrypt(t.Context(), "ann")
		must(t, err)
	}
	secret, previous := r.stored(e.ID)
	if !strings.HasPrefix(secret, "enc2:new:") || !strings.HasPrefix(previous, "enc2:new:") {
		t.Errorf("stored: %q, %q", secret, previous)
	}
}

// TestRotateASecret: a receiver that still has the secret before gets on, until its time is over.
func TestRotateASecret(t *testing.T) {
	r := newRig(t)
	var signatures int
	before := newReceiver(t)
	e := before.register(r)
	before.answer = func(_ int, w http.ResponseWriter, request *http.Request) {
		signatures = len(strings.Fields(request.Header.Get(standardwebhooks.HeaderWebhookSignature)))
		w.WriteHeader(http.StatusNoContent)
	}
	test := func(what string, secret string, want webhook.Outcome, signed int) {
		t.Helper()
		before.mu.Lock()
		before.secret = secret
		before.mu.Unlock()
		got, err := r.endpoints.Test(t.Context(), e.ID)
		must(t, err)
		if got.Outcome != want || want == webhook.Delivered && signatures != signed {
			t.Errorf("%s: got %+v with %d signatures, want %s with %d", what, got, signatures, want, signed)
		}
	}
	rotated, err := r.endpoints.Rotate(t.Context(), "ann", e.ID, time.Hour)
	must(t, err)
	after := rotated.Secret
	if _, err := r.endpoints.Rotate(t.Context(), "ann", e.ID, time.Hour); pipeline.KindOf(err) != pipeline.KindConflict {
		t.Errorf("a third secret: got %v, want a conflict", err)
	}
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(after, "whsec_")); err != nil || len(key) != 32 {
		t.Errorf("the new secret is %d bytes: %v", len(key), err)
	}
	test("the secret before", e.Secret, webhook.Delivered, 2)
	test("the new secret", after, webhook.Delivered, 2)
	r.exec(`update endpoints set previous_secret_until = now() - interval '1 second'`)
	test("the new secret, later", after, webhook.Delivered, 1)
	_, err = r.worker().PruneEvents(t.Context(), time.Hour, 1)
	must(t, err)
	if _, previous := r.stored(e.ID); previous != "" {
		t.Error("the secret before is kept for ever")
	}
	_, err = r.endpoints.Rotate(t.Context(), "ann", e.ID, 0)
	must(t, err)
	if _, previous := r.stored(e.ID); previous != "" {
		t.Error("the secret before is kept although it must not count")
	}
	for _, keep := range []time.Duration{-1, webhook.MaxSecretOverlap + 1} {
		if _, err := r.endpoints.Rotate(t.Context(), "ann", e.ID, keep); pipeline.KindOf(err) != pipeline.KindInvalid {
			t.Errorf("keep %s: got %v", keep, err)
		}
	}
	if _, err := r.endpoints.Rotate(t.Context(), "ann", 99, 0); pipeline.KindOf(err) != pipeline.KindNotFound {
		t.Errorf("an unknown endpoint: got %v", err)
	}
}

// TestALostKeyIsOverWithTheNextSecret: what was encrypted under a key that is lost holds nothing up once the endpoint
// has another secret, although the one before should count still.
func TestALostKeyIsOverWithTheNextSecret(t *testing.T) {
	r := newRig(t)
	receiver := newReceiver(t)
	r.endpoints = r.with(oldKey)
	e := receiver.register(r)
	later := r.with(newKey)
	rotated, err := later.Rotate(t.Context(), "ann", e.ID, time.Hour)
	must(t, err)
	receiver.mu.Lock()
	receiver.secret = rotated.Secret
	receiver.mu.Unlock()
	if got, err := later.Test(t.Context(), e.ID); err != nil || got.Outcome != webhook.Delivered {
		t.Errorf("got %+v, %v, want it delivered", got, err)
	}
}

// TestDeliveriesUseBothSecrets: what a worker delivers is signed with the secrets of the claim.
func TestDeliveriesUseBothSecrets(t *testing.T) {
	r := newRig(t)
	receiver := newReceiver(t)
	e := receiver.register(r) // it goes on with the secret before
	_, err := r.endpoints.Rotate(t.Context(), "ann", e.ID, time.Hour)
	must(t, err)
	r.sale("drop-1", 10)
	r.orders("drop-1", 1)
	r.deliverer(r.store, time.Second)
	testkit.Eventually(t, 10*time.Second, "the event to arrive", func() bool {
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		return len(receiver.first) > 0
	})
}
