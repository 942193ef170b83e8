package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// sandboxDir is where dev puts its servers.
var sandboxDir = regexp.MustCompile(`/tmp/sluice-[0-9]+`)

// startDev returns once dev says that it runs.
func startDev(t *testing.T, args ...string) (p *private, api, dir string) {
	t.Helper()
	return startDevWith(t, nil, args...)
}

// startDevWith is startDev with some settings.
func startDevWith(t *testing.T, settings []string, args ...string) (p *private, api, dir string) {
	t.Helper()
	p = startPrivate(t, settings, append([]string{"dev", "--http-addr", "127.0.0.1:0"}, args...)...)
	testkit.Eventually(t, 3*time.Minute, "dev to run",
		func() bool { return strings.Contains(p.out.String(), "Sluice is running") })
	api = regexp.MustCompile(`API (http://[0-9.:]+)`).FindStringSubmatch(p.out.String())[1]
	return p, api, sandboxDir.FindString(p.out.String())
}

func TestDevServesAndStopsOnInterrupt(t *testing.T) {
	t.Parallel()
	p, api, dir := startDev(t, "--sale")
	order(t, api, "alice", http.StatusAccepted)
	if n := len(p.left(dir)); n < 6 {
		t.Fatalf("saw %d processes and directories, want all of dev's: the check below would see nothing", n)
	}
	p.signal(t, syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	p.mustLeaveNothing(t, dir)
	out := p.out.String()
	for _, text := range []string{
		"curl -i -X POST " + api, "worker-1", "worker-2", "worker left",
		"nothing is left behind",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("dev did not say %q", text)
		}
	}
}

// A dev that is killed can't tidy up; its supervisor does.
func TestDevThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	p, api, dir := startDev(t, "--sale", "--workers", "1")
	order(t, api, "alice", http.StatusAccepted)
	p.signal(t, syscall.SIGKILL)
	p.wait()
	p.mustLeaveNothing(t, dir)
}

// order asks for one unit of the example sale.
func order(t *testing.T, api, user string, want int) {
	t.Helper()
	status, body := 0, ""
	testkit.Eventually(t, time.Minute, "an answer", func() bool { // a busy machine may be asked again
		status, body = request(t, api, user)
		return status != http.StatusServiceUnavailable
	})
	if status != want {
		t.Fatalf("got %d, %s, want %d", status, body, want)
	}
}

// request asks for the unit, every time with the same key.
func request(t *testing.T, api, user string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/v1/sales/"+devSale+"/orders",
		strings.NewReader(`{"quantity":1}`))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User-Id", user)
	request.Header.Set("Idempotency-Key", "one")
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}
