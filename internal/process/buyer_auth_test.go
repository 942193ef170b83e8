package process_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// ask returns what is answered at a URL, by a server or on a socket.
func ask(t *testing.T, socket, url string, header ...string) (status int, body string) {
	t.Helper()
	var dialer net.Dialer
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := (&http.Client{Timeout: 30 * time.Second, Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

var listening = regexp.MustCompile(`"api listening" url=(\S+)`)

// TestReadinessTellsOfTheKeys: an api that can't tell buyers apart is not ready, and says which setting to look at.
func TestReadinessTellsOfTheKeys(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(issuer.Close)
	at, log := runAPIOn(t, testkit.PrivateRedis(t), "--auth-mode", "jwt", "--jwt-issuer", "i", "--jwt-audience", "shop",
		"--jwt-jwks-url", issuer.URL)
	testkit.Eventually(t, time.Minute, "/readyz to tell of the keys alone", func() bool {
		status, body := ask(t, "", at+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, `{"name":"orders","ok":true`) &&
			strings.Contains(body, `{"name":"keys","ok":false,"required":true,"detail":"the keys of buyers' tokens were never`) &&
			strings.Contains(body, `{"name":"jwks","ok":false,"required":false`)
	})
	if _, body := ask(t, "", at+"/metrics"); !strings.Contains(body, `sluice_jwks_fetches_total{result="failed"}`) {
		t.Error("the metrics do not tell of the failed fetch")
	}
	public := listening.FindStringSubmatch(log.String())[1]
	status, body := ask(t, "", public+"/v1/sales/drop-1/orders/mine", "Authorization", "Bearer x.y.z")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "identity-unavailable") {
		t.Errorf("got %d %s", status, body)
	}
	if !strings.Contains(log.String(), "the keys of buyers' tokens can't be fetched") {
		t.Error("the log does not say that the keys can't be fetched")
	}
}

// TestAProxyOnASocket: an api behind a proxy on the same machine serves buyers on a socket, also where a killed one
// left its socket behind, and not to everybody on the machine.
func TestAProxyOnASocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sluice") // shorter than t.TempDir: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "api.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	_, log := runAPIOn(t, testkit.PrivateRedis(t), "--auth-mode", "proxy", "--auth-proxy-from", "unix",
		"--auth-proxy-header", "X-Customer", "--http-addr", "unix:"+socket)
	testkit.Eventually(t, time.Minute, "the api to serve", func() bool { return listening.MatchString(log.String()) })
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("got the socket %v, %v; want it for user and group only", info, err)
	}
	const mine = "http://api/v1/sales/drop-1/orders/mine"
	if status, body := ask(t, socket, mine, "X-Customer", "ann"); status != http.StatusNotFound {
		t.Errorf("got %d %s, want that there is no such sale", status, body)
	}
	if status, body := ask(t, socket, mine, "X-User-Id", "ann"); status != http.StatusUnauthorized {
		t.Errorf("without the proxy's header: got %d %s", status, body)
	}
}
