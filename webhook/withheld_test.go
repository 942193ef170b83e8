package webhook_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/internal/testkit"
	"sluice/webhook"
)

// keyed runs a deliverer with some keys until stop is called.
func (r *rig) keyed(keys *webhook.Keyring, reg *prometheus.Registry, log *slog.Logger) (stop func()) {
	r.Helper()
	d := webhook.NewDeliverer(r.worker(), allowPrivate, keys, webhook.NewMetrics(reg), log)
	d.Hasten(10*time.Millisecond, patient)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	r.Cleanup(stop)
	return stop
}

// TestALostKeyIsNoFailureOfTheReceiver: while a worker can't decrypt the secret of an endpoint, its events wait, new
// ones and those to be resent; however long that takes, the endpoint is not disabled for it.
func TestALostKeyIsNoFailureOfTheReceiver(t *testing.T) {
	r := newRig(t)
	r.endpoints = r.with(oldKey)
	receiver := newReceiver(t)
	e := receiver.register(r, webhook.TypeOrderConfirmed)
	r.sale("drop", 100)
	ids := r.orders("drop", 3)
	// The receiver itself failed a while ago, long enough to be disabled with the next failure.
	r.exec(`update endpoints set attempts = 5, failing_since = now() - interval '25 hours', last_error = 'it was away'`)
	var text bytes.Buffer
	reg := prometheus.NewRegistry()
	stop := r.keyed(keyring(t, newKey), reg, slog.New(slog.NewTextHandler(&text, nil)))
	tried := func() float64 {
		families, err := reg.Gather()
		must(t, err)
		for _, family := range families {
			for _, m := range family.Metric {
				for _, label := range m.Label {
					if family.GetName() == "sluice_webhook_deliveries_total" && label.GetValue() == "unsigned" {
						return m.GetCounter().GetValue()
					}
				}
			}
		}
		return 0
	}
	testkit.Eventually(t, patient, "some tries", func() bool { return tried() >= 3 })
	testkit.Eventually(t, patient, "the gauge", func() bool {
		return testutil.CollectAndCount(reg, "sluice_webhook_endpoints_withheld") == 1
	})
	got := r.endpoint(e.ID)
	if got.Disabled() || got.Attempts != 0 || !got.FailingSince.IsZero() || !got.Withheld() ||
		!strings.Contains(got.LastError, "ENCRYPTION_KEYS does not have it") {
		t.Errorf("got %+v, want it to wait", got)
	}
	stop()
	if lines := strings.Count(text.String(), "can't be signed"); lines != 1 {
		t.Errorf("the log says %d times that events wait, want once a minute:\n%s", lines, text.String())
	}
	if n := len(receiver.subjects()); n != 0 {
		t.Errorf("%d events were sent", n)
	}

	stop = r.keyed(keyring(t, oldKey), prometheus.NewRegistry(), r.log)
	receiver.wait(3)
	wantSubjects(t, receiver.subjects(), ids)
	testkit.Eventually(t, patient, "nothing to wait", func() bool { got := r.endpoint(e.ID); return !got.Withheld() })
	stop()

	_, err := r.endpoints.Resend(t.Context(), "ann", e.ID, webhook.ResendRequest{From: 1})
	must(t, err)
	before := tried()
	stop = r.keyed(nil, prometheus.NewRegistry(), r.log)
	testkit.Eventually(t, patient, "events to be resent to wait", func() bool { got := r.endpoint(e.ID); return got.Withheld() })
	stop()
	if n := r.count(`resends where attempts > 0`); n != 0 || tried() != before {
		t.Errorf("%d events to be resent have failed", n)
	}
	r.keyed(keyring(t, oldKey), prometheus.NewRegistry(), r.log)
	receiver.waitAgain(3)
}

// TestASecretIsOfOneEndpoint: who can write to the database gains nothing by giving an endpoint what is stored for
// another one, be it with the URL.
func TestASecretIsOfOneEndpoint(t *testing.T) {
	r := newRig(t)
	r.endpoints = r.with(oldKey)
	first, second := newReceiver(t), newReceiver(t)
	from, to := first.register(r), second.register(r)
	stored, _ := r.stored(from.ID)
	r.exec(`update endpoints set url = 'https://example.com/' where id = $1`, from.ID)
	r.exec(`update endpoints set url = $2, secret = $3 where id = $1`, to.ID, from.URL, stored)
	got, err := r.endpoints.Test(t.Context(), to.ID)
	must(t, err)
	if got.Outcome != webhook.Unsigned || !strings.Contains(got.Error, "is another endpoint's") {
		t.Errorf("got %s %q", got.Outcome, got.Error)
	}
}

// TestSecretsOfAnEarlierBuild: what was bound to the URL alone works on, and is bound to the endpoint when it is
// encrypted again.
func TestSecretsOfAnEarlierBuild(t *testing.T) {
	r := newRig(t)
	keys := keyring(t, oldKey)
	r.endpoints = r.with(oldKey)
	receiver := newReceiver(t)
	e := receiver.register(r)
	before := webhook.EncryptBefore(keys, e.Secret, e.URL)
	r.exec(`update endpoints set secret = $1`, before)
	for _, encrypted := range []bool{false, true} {
		if got, err := r.endpoints.Test(t.Context(), e.ID); err != nil || got.Outcome != webhook.Delivered {
			t.Errorf("encrypted again %t: got %+v, %v", encrypted, got, err)
		}
		secret, _ := r.stored(e.ID)
		current, err := keys.Inspect(secret, e.ID, e.URL)
		must(t, err)
		if current != encrypted || strings.HasPrefix(secret, "enc2:") != encrypted {
			t.Errorf("encrypted again %t: stored is %q", encrypted, secret)
		}
		n, err := r.endpoints.Encrypt(t.Context(), "ann")
		must(t, err)
		if n == 1 == encrypted {
			t.Errorf("encrypted again %t: %d were changed", encrypted, n)
		}
	}
	if _, err := webhook.NewEndpointService(r.store.EndpointRegistry(), allowPrivate, nil).Add(t.Context(), "ann",
		"https://example.com/plain", nil); err == nil {
		t.Error("a secret is stored as it is beside encrypted ones")
	}
}
