package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/internal/testkit"
	"sluice/internal/view"
)

// The life of an endpoint, as an operator leads it. No Redis is set.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(204)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request,
	) {
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	careful := []string{"DATABASE_URL=" + testkit.Database(t)}
	at := append(careful[:1:1], "WEBHOOK_ALLOW_PRIVATE=true")

	if out := sluice(t, at, "endpoint", "ls").mustFine(t); !strings.Contains(out, "No endpoints") {
		t.Errorf("ls: got %q", out)
	}
	sluice(t, careful, "endpoint", "add", "--url", receiver.URL).mustRefuse(t, 2, "WEBHOOK_ALLOW_PRIVATE=true")
	sluice(t, careful, "endpoint", "add", "--url", "https://[::1]/x").mustRefuse(t, 2, "not a public address")
	if out := sluice(t, at, "endpoint", "add", "--url", receiver.URL, "--types",
		"order.paid,sale.sold_out").mustFine(t); !strings.Contains(out, "whsec_") || !strings.Contains(out, "Endpoint 1") {
		t.Errorf("add: got %q", out)
	}
	sluice(t, at, "endpoint", "add", "--url", receiver.URL).mustRefuse(t, 2, "is registered")
	second := decoded[view.Endpoint](t, sluice(t, at, "endpoint", "add", "--url", receiver.URL+"/2", "--json").mustFine(t))
	if !strings.HasPrefix(second.Secret, "whsec_") || len(second.Types) != 0 {
		t.Errorf("add: got %+v", second)
	}
	if out := sluice(t, at, "endpoint", "test", "1").mustFine(t); !strings.Contains(out, "took the event: 204") {
		t.Errorf("test: got %q", out)
	}
	status.Store(503)
	if got := sluice(t, at, "endpoint", "test", "1"); got.code != 1 || !strings.Contains(got.out, "answered 503") {
		t.Errorf("test: got %+v", got)
	}
	if got := sluice(t, careful, "endpoint", "test", "1", "--json"); got.code != 1 ||
		decoded[view.Delivery](t, got.out).Result != "failed" {
		t.Errorf("test without the setting: got %+v", got)
	}
	if out := sluice(t, at, "endpoint", "disable", "1").mustFine(t); !strings.Contains(out, "is disabled") {
		t.Errorf("disable: got %q", out)
	}
	out := sluice(t, at, "endpoint", "ls").mustFine(t)
	for _, text := range []string{"order.paid,sale.sold_out", "all events", "disabled", "by cli:", "active"} {
		if !strings.Contains(out, text) {
			t.Errorf("ls: got %q, want %q in it", out, text)
		}
	}
	if strings.Contains(out, "whsec") {
		t.Errorf("ls shows a secret: %s", out)
	}
	if got := decoded[view.Endpoint](t, sluice(t, at, "endpoint", "enable", "1", "--skip-next",
		"--json").mustFine(t)); got.State != "active" {
		t.Errorf("enable: got %+v", got)
	}
	keys := append(at[:2:2], "ENCRYPTION_KEYS=k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	sluice(t, at, "endpoint", "encrypt").mustRefuse(t, 2, "set ENCRYPTION_KEYS")
	if out := sluice(t, keys, "endpoint", "encrypt").mustFine(t); !strings.Contains(out, "2 endpoints") {
		t.Errorf("encrypt: got %q", out)
	}
	rotated := decoded[view.Endpoint](t, sluice(t, keys, "endpoint", "rotate", "1", "--keep", "1h", "--json").mustFine(t))
	if !strings.HasPrefix(rotated.Secret, "whsec_") {
		t.Errorf("rotate: got %+v", rotated)
	}
	sluice(t, keys, "endpoint", "rotate", "1", "--keep", "169h").mustRefuse(t, 2, "168h")
	status.Store(204)
	sluice(t, keys, "endpoint", "test", "1").mustFine(t)
	if got := sluice(t, at, "endpoint", "test", "1"); got.code != 1 || !strings.Contains(got.out, "ENCRYPTION_KEYS") {
		t.Errorf("test without the key: got %+v", got)
	}
	sluice(t, at, "endpoint", "remove", "2").mustFine(t)
	if out := sluice(t, at, "event", "ls", "--since", "2h").mustFine(t); !strings.Contains(out, "No events") {
		t.Errorf("event ls: got %q", out)
	}
	sluice(t, at, "event", "ls", "--until", "soon").mustRefuse(t, 2, "--until soon", "RFC 3339")
	sluice(t, at, "event", "ls", "--order", "7").mustRefuse(t, 2, "a UUID")
	sluice(t, at, "endpoint", "resend", "1").mustRefuse(t, 2, "--event", "--from")
	sluice(t, at, "endpoint", "resend", "1", "--from", "5", "--to", "4").mustRefuse(t, 2, "before position 5")
	sluice(t, at, "endpoint", "resend", "2", "--from", "5").mustRefuse(t, 2, "no endpoint 2", "sluice endpoint ls")
	sluice(t, at, "endpoint", "replay", "1", "--from", "1").mustRefuse(t, 2, "no event is kept")
	sluice(t, at, "endpoint", "replay", "2", "--from", "1").mustRefuse(t, 2, "no endpoint 2", "sluice endpoint ls")
	for _, command := range []string{"enable", "disable", "remove", "rotate", "test"} {
		sluice(t, at, "endpoint", command, "2").mustRefuse(t, 2, "no endpoint 2", "sluice endpoint ls")
	}
	logged(t, at, "add-endpoint add-endpoint disable-endpoint enable-endpoint encrypt-secret encrypt-secret rotate-secret "+
		"remove-endpoint")
}
