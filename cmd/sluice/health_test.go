package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHealthOverTLS: on an address of this machine the certificate may be for any name; elsewhere it must be right, or
// of a CA that is named.
func TestHealthOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	sluice(t, nil, "health", server.URL).mustFine(t)
	sluice(t, nil, "health", server.URL, "--ca-file", ca).mustFine(t)
	sluice(t, nil, "health", named).mustRefuse(t, 1, "certificate")
	sluice(t, nil, "health", named, "--ca-file", ca).mustRefuse(t, 1, "certificate is valid for")
	sluice(t, nil, "health", server.URL, "--ca-file", ca+".x").mustRefuse(t, 2, "no such file")
}

// TestDoctorWarnsOfCertificates: one that ends within two weeks is found wrong, and one that can't be read, too.
func TestDoctorWarnsOfCertificates(t *testing.T) {
	t.Parallel()
	at := servers(t)
	path := filepath.Join(t.TempDir(), "cert.pem")
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ends := func(after time.Duration) {
		t.Helper()
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(after)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &own.PublicKey, own)
		must(t, err)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	}
	at = append(at, "HTTP_TLS_CERT_FILE="+path, "HTTP_TLS_KEY_FILE=/not/readable/here")
	ends(15*24*time.Hour + time.Hour)
	if got := sluice(t, at, "doctor").mustFine(t); !strings.Contains(got, "15 days left") {
		t.Errorf("got %s", got)
	}
	for after, says := range map[time.Duration]string{
		14*24*time.Hour + time.Hour: "14 days left", -time.Hour: "-1 days left",
	} {
		ends(after)
		if got := sluice(t, at, "doctor"); got.code != 1 || !strings.Contains(got.out, says) ||
			!strings.Contains(got.out, "HTTP_TLS_CERT_FILE: renew it") {
			t.Errorf("%s: got %+v", says, got)
		}
	}
	must(t, os.WriteFile(path, []byte("hello"), 0o600))
	if got := sluice(t, at, "doctor"); got.code != 1 || !strings.Contains(got.out, "certificate in PEM") {
		t.Errorf("no certificate: got %+v", got)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for path, status := range map[string]int{"/ok": 200, "/empty": 204, "/down": 503, "/gone": 404} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	mux.Handle("GET /moved", http.RedirectHandler("/ok", http.StatusFound))
	stuck := make(chan struct{})
	mux.HandleFunc("GET /stuck", func(http.ResponseWriter, *http.Request) { <-stuck })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stuck) })

	for path, code := range map[string]int{"/ok": 0, "/empty": 0, "/down": 1, "/gone": 1, "/moved": 1, "/stuck": 1} {
		// A proxy in the environment must not answer for the server.
		got := sluice(t, []string{"HTTP_PROXY=http://127.0.0.1:1"}, "health", server.URL+path, "--timeout", "2s")
		if got.code != code {
			t.Errorf("%s: got exit code %d, want %d\n%s", path, got.code, code, got.err)
		}
	}
	sluice(t, nil, "health", "http://127.0.0.1:1/").mustRefuse(t, 1, "does not answer")
}
