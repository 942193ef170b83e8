package process_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// TestAnAPIThatRefusesOrdersIsNotReady: with DURABILITY_STRICT an api starts without a replica, says that it refuses
// orders, and is ready once there is one, and while there is one.
func TestAnAPIThatRefusesOrdersIsNotReady(t *testing.T) {
	t.Parallel()
	server := testkit.PrivateRedis(t)
	at, log := runAPIOn(t, server, "--durability", "replica", "--durability-strict", "true")
	if !strings.Contains(log.String(), "orders are refused until one is") {
		t.Errorf("the log does not say that orders are refused:\n%s", log)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var body []byte
	ready := func() bool {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/readyz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = got.Body.Close() }()
		if body, err = io.ReadAll(got.Body); err != nil {
			t.Fatal(err)
		}
		return got.StatusCode == http.StatusOK
	}
	told := func() bool { return !ready() && strings.Contains(string(body), "DURABILITY_STRICT is on") }
	testkit.Eventually(t, time.Minute, "the reason not to be ready", told) // not that Redis is not verified yet
	second := testkit.PrivateReplica(t, server)
	testkit.Eventually(t, time.Minute, "the api to be ready", ready)
	if err := second.Pause(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the api not to be ready", told)
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the api to be ready again", ready)
}
