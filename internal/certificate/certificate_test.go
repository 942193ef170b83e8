package certificate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/certificate"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made returns a certificate that ends in a while, and its key, both in PEM.
func made(t *testing.T, ends time.Duration) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"api.example.com"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(ends),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &own.PublicKey, own)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	must(t, err)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", private)
}

// TestWhatIsNoPairChangesNothing: a pair that is half written, mixed or over is refused, and the one before is shown.
func TestWhatIsNoPairChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := certificate.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	write := func(cert, key string) {
		t.Helper()
		must(t, os.WriteFile(files.Cert, []byte(cert), 0o600))
		must(t, os.WriteFile(files.Key, []byte(key), 0o600))
	}
	cert, key := made(t, 10*24*time.Hour+time.Hour)
	write(cert, key)
	text, err := files.Read()
	must(t, err)
	current, err := certificate.Open(text)
	must(t, err)
	shown := func() *tls.Certificate {
		t.Helper()
		c, err := current.Config().GetCertificate(nil)
		must(t, err)
		return c
	}
	first := shown()
	if days := current.DaysLeft(); days != 10 {
		t.Errorf("%d days are left, want 10", days)
	}
	otherCert, otherKey := made(t, 20*24*time.Hour+time.Hour)
	overCert, overKey := made(t, -time.Hour)
	for name, c := range map[string][2]string{
		"another key":         {cert, otherKey},
		"another certificate": {otherCert, key},
		"half a chain":        {otherCert + cert[:len(cert)/2], otherKey},
		"a chain without end": {otherCert + cert[:len(cert)-4], otherKey},
		"half a key":          {otherCert, otherKey[:len(otherKey)/2]},
		"nothing":             {"", ""},
		"no key":              {otherCert, "\n"},
		"no PEM":              {"hello", otherKey},
		"a large file":        {otherCert + strings.Repeat("\n", 300<<10), otherKey},
		"over":                {overCert, overKey},
	} {
		write(c[0], c[1])
		text, err := files.Read()
		if err == nil {
			err = current.Replace(text)
		}
		if err == nil || shown() != first || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	write("# of the CA\n"+otherCert+cert+"\n\n", otherKey)
	text, err = files.Read()
	must(t, err)
	must(t, current.Replace(text))
	if len(shown().Certificate) != 2 || current.DaysLeft() != 20 {
		t.Errorf("a chain: got %d certificates, %d days left", len(shown().Certificate), current.DaysLeft())
	}
	write(overCert, overKey)
	late, err := files.Load()
	must(t, err)
	if days := certificate.DaysLeft(late.Leaf); days != -1 {
		t.Errorf("of one that is over, %d days are left", days)
	}
}
