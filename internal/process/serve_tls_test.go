package process_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/internal/testkit"
)

// pair is where an api reads its certificate.
type pair struct{ cert, key string }

// pair puts a certificate for 127.0.0.1 where it can be replaced.
func (a *authority) pair(valid time.Duration) pair {
	a.Helper()
	dir := a.TempDir()
	p := pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	p.replace(a, valid)
	return p
}

// replace replaces both files, one after the other.
func (p pair) replace(a *authority, valid time.Duration) {
	a.Helper()
	cert, key := a.server("127.0.0.1", valid)
	replaceFile(a.T, p.cert, content(a.T, cert))
	replaceFile(a.T, p.key, content(a.T, key))
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	ok(t, err)
	return string(text)
}

// believes is a TLS configuration that believes this authority only.
func (a *authority) believes(protocols ...string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, NextProtos: protocols}
}

// overTLS is an answer, with what it came over.
type overTLS struct {
	status, major int // major version of HTTP
	version       uint16
	body          string
}

// get asks over a connection of its own.
func (a *authority) get(url string, http2 bool) (overTLS, error) {
	a.Helper()
	protocols := []string{"http/1.1"}
	if http2 {
		protocols = []string{"h2", "http/1.1"}
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: a.believes(protocols...), DisableKeepAlives: true, ForceAttemptHTTP2: http2,
	}}
	request, err := http.NewRequestWithContext(a.Context(), http.MethodGet, url, http.NoBody)
	ok(a.T, err)
	response, err := client.Do(request)
	if err != nil {
		return overTLS{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return overTLS{response.StatusCode, response.ProtoMajor, response.TLS.Version, string(body)}, err
}

// shown is the certificate that a listener shows now.
func (a *authority) shown(address string) *x509.Certificate {
	a.Helper()
	dialer := &tls.Dialer{Config: a.believes()}
	conn, err := dialer.DialContext(a.Context(), "tcp", address)
	ok(a.T, err)
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// raw sends a text to an address without TLS, and returns what is answered.
func raw(t *testing.T, address, text string) string {
	t.Helper()
	conn := dialRaw(t, address)
	_, err := io.WriteString(conn, text)
	ok(t, err)
	answer, err := io.ReadAll(conn)
	ok(t, err)
	return string(answer)
}

func dialRaw(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ok(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// TestBothSidesOverTLS: buyers and operators are served over TLS, by HTTP/1.1 also where they offer HTTP/2, and not
// without it; and a
// request that can't be read is a problem document inside of TLS, too.
func TestBothSidesOverTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	buyers, operators := ours.pair(24*time.Hour), ours.pair(15*24*time.Hour)
	admin, log := runAPIOn(t, testkit.PrivateRedis(t),
		"--http-tls-cert-file", buyers.cert, "--http-tls-key-file", buyers.key,
		"--admin-tls-cert-file", operators.cert, "--admin-tls-key-file", operators.key)
	public := publicSide(t, log)
	for _, url := range []string{public, admin} {
		for _, http2 := range []bool{false, true} {
			got, err := ours.get(url+"/healthz", http2)
			ok(t, err)
			if got.status != http.StatusOK || got.major != 1 || got.version < tls.VersionTLS12 {
				t.Errorf("%s: got %+v", url, got)
			}
		}
		address := strings.TrimPrefix(url, "https://")
		got := raw(t, address, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("x", 4<<10))
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "application/problem+json") ||
			!strings.Contains(got, "use https://") {
			t.Errorf("without TLS: got %q", got)
		}
		old := ours.believes()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if _, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", address); err == nil {
			t.Errorf("%s: TLS 1.1 is taken", url)
		}
		conn, err := (&tls.Dialer{Config: ours.believes("http/1.1")}).DialContext(t.Context(), "tcp", address)
		ok(t, err)
		_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\n\r\n")
		ok(t, err)
		refusal, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.Contains(string(refusal), "application/problem+json") || !strings.Contains(string(refusal), "invalid-request") {
			t.Errorf("no Host: got %q", refusal)
		}
	}
	metrics, err := ours.get(admin+"/metrics", false)
	ok(t, err)
	for _, want := range []string{
		`sluice_tls_certificate_left_days{setting="HTTP_TLS_CERT_FILE"} 0`, // an hour ago it was 24 hours
		`sluice_tls_certificate_left_days{setting="ADMIN_TLS_CERT_FILE"} 14`,
		`sluice_tls_handshakes_total{result="plain"} 2`, `sluice_tls_handshakes_total{result="failed"} 2`,
	} {
		if !strings.Contains(metrics.body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if !strings.Contains(log.String(), "a certificate ends soon") {
		t.Errorf("the log does not say that a certificate ends:\n%s", log.String())
	}
}

// TestSlowHandshakes: who connects and says nothing takes room within the limits, and not for ever.
func TestSlowHandshakes(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	p := ours.pair(24 * time.Hour)
	_, log := runAPIOn(t, testkit.PrivateRedis(t), "--http-tls-cert-file", p.cert, "--http-tls-key-file", p.key,
		"--max-connections-per-client", "2")
	public := publicSide(t, log)
	slow := []net.Conn{dialRaw(t, strings.TrimPrefix(public, "https://")), dialRaw(t, strings.TrimPrefix(public, "https://"))}
	_, err := slow[1].Write([]byte{22, 3, 1}) // a handshake begins
	ok(t, err)
	if _, err := ours.get(public+"/healthz", false); err == nil {
		t.Error("a third connection of the client is served")
	}
	for _, conn := range slow {
		if got, err := io.ReadAll(conn); err != nil {
			t.Errorf("got %q, %v; want the connection closed", got, err)
		}
	}
	testkit.Eventually(t, time.Minute, "room for another connection", func() bool {
		_, err := ours.get(public+"/healthz", false)
		return err == nil
	})
}

// TestCertificatesAreReplacedWithoutARestart: what renews a certificate need not stop the api, and what is no
// pair changes nothing.
func TestCertificatesAreReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	p := ours.pair(24 * time.Hour)
	admin, log := runAPIOn(t, testkit.PrivateRedis(t), "--http-tls-cert-file", p.cert, "--http-tls-key-file", p.key)
	address := strings.TrimPrefix(publicSide(t, log), "https://")
	first := ours.shown(address)

	p.replace(ours, 48*time.Hour)
	testkit.Eventually(t, time.Minute, "the second certificate", func() bool { return !ours.shown(address).Equal(first) })
	second := ours.shown(address)
	_, other := ours.server("127.0.0.1", 24*time.Hour)
	replaceFile(t, p.key, content(t, other))
	testkit.Eventually(t, time.Minute, "a key of another certificate to be refused", func() bool {
		_, metrics := ask(t, "", admin+"/metrics")
		return strings.Contains(metrics, `sluice_secret_reloads_total{result="refused",setting="HTTP_TLS_CERT_FILE"} 1`)
	})
	if !ours.shown(address).Equal(second) {
		t.Error("a pair that is none is shown")
	}
	p.replace(ours, 72*time.Hour)
	testkit.Eventually(t, time.Minute, "the third certificate", func() bool { return !ours.shown(address).Equal(second) })
	if text := log.String(); strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "TLS handshake") {
		t.Errorf("the log:\n%s", text)
	}
}

// TestWrongCertificates: a program says at its start what is wrong with them.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	p, other := ours.pair(24*time.Hour), ours.pair(24*time.Hour)
	for name, c := range map[string]struct {
		env  map[string]string
		says []string
	}{
		"no key":         {map[string]string{"HTTP_TLS_CERT_FILE": p.cert}, []string{"HTTP_TLS_KEY_FILE is not"}},
		"no certificate": {map[string]string{"ADMIN_TLS_KEY_FILE": p.key}, []string{"ADMIN_TLS_CERT_FILE is not"}},
		"no pair": {
			map[string]string{"HTTP_TLS_CERT_FILE": p.cert, "HTTP_TLS_KEY_FILE": other.key},
			[]string{"HTTP_TLS_CERT_FILE", "no pair"},
		},
		"no file": {
			map[string]string{"ADMIN_TLS_CERT_FILE": p.cert + ".x", "ADMIN_TLS_KEY_FILE": p.key},
			[]string{"ADMIN_TLS_CERT_FILE", "no such file"},
		},
		"exchanged": {
			map[string]string{"HTTP_TLS_CERT_FILE": p.key, "HTTP_TLS_KEY_FILE": p.cert},
			[]string{"HTTP_TLS_CERT_FILE", "no pair"},
		},
		"a socket": {
			map[string]string{"HTTP_TLS_CERT_FILE": p.cert, "HTTP_TLS_KEY_FILE": p.key, "HTTP_ADDR": "unix:/run/s"},
			[]string{"Unix socket"},
		},
	} {
		_, err := config.Load(config.API, nil, func(name string) string {
			servers := map[string]string{"REDIS_URL": "redis://127.0.0.1:1", "DATABASE_URL": "postgres://127.0.0.1:1/x"}
			return cmp.Or(c.env[name], servers[name])
		}, io.Discard)
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("%s: got %v, want it to say %q", name, err, text)
			}
		}
	}
}

// TestAWorkerOverTLS: a worker's health and metrics are served over TLS, and not without it.
func TestAWorkerOverTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	shown := ours.pair(24 * time.Hour)
	cfg := settings(t, testkit.PrivateRedis(t), testkit.Database(t), "--admin-addr", "127.0.0.1:0",
		"--admin-tls-cert-file", shown.cert, "--admin-tls-key-file", shown.key)
	log := &testkit.Log{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.RunWorker(ctx, cfg, "test", slog.New(slog.NewTextHandler(log, nil))) }()
	t.Cleanup(func() {
		stop()
		ok(t, <-ended)
	})
	at := regexp.MustCompile(`"worker operations" url=(https://([0-9.:]+))`)
	testkit.Eventually(t, time.Minute, "the worker to serve", func() bool { return at.MatchString(log.String()) })
	found := at.FindStringSubmatch(log.String())
	for _, path := range []string{"/healthz", "/metrics"} {
		got, err := ours.get(found[1]+path, false)
		ok(t, err)
		if got.status != http.StatusOK || got.version < tls.VersionTLS12 {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	if got := raw(t, found[2], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "use https://") {
		t.Errorf("without TLS: got %q", got)
	}
	if _, err := newAuthority(t).get(found[1]+"/healthz", false); err == nil {
		t.Error("a certificate of an unknown authority is believed")
	}
}
