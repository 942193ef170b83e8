package process_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/config"
	"sluice/internal/process"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// authority is a CA that the test makes.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of the test"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	ok(t, err)
	a.cert, err = x509.ParseCertificate(der)
	ok(t, err)
	a.file = write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	return key
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file that a server, which may run as another user, reads.
func write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-tls-")
	ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, name)
	ok(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
	return path
}

// server makes the certificate of a server, valid from an hour ago for so long.
func (a *authority) server(host string, valid time.Duration) (cert, key string) {
	a.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid - time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	own := newKey(a.T)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	ok(a.T, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	ok(a.T, err)
	return write(a.T, "cert.pem", "CERTIFICATE", der), write(a.T, "key.pem", "PRIVATE KEY", private)
}

// freePort is one that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// redis runs a Redis with a certificate for a host, and a password, on 127.0.0.1.
func (a *authority) redis(host string, valid time.Duration) (port string) {
	a.Helper()
	cert, key := a.server(host, valid)
	port = freePort(a.T)
	testkit.PrivateRedis(a.T, "bind 127.0.0.1", "tls-port "+port, "tls-cert-file "+cert, "tls-key-file "+key,
		"tls-ca-cert-file "+a.file, "tls-auth-clients no", "user default on >hidden-word ~* &* +@all")
	return port
}

// reach asks a server of this configuration, and returns the error.
func reach(t *testing.T, redisURL, ca, databaseURL string) error {
	t.Helper()
	env := map[string]string{
		"REDIS_URL": redisURL, "REDIS_CA_FILE": ca, "DATABASE_URL": databaseURL, "START_TIMEOUT": "5s",
	}
	cfg, err := config.Load(config.Worker, nil, func(name string) string { return env[name] }, t.Output())
	ok(t, err)
	return connect(t.Context(), cfg)
}

// distrusted fails the test unless an error says why, and what to do, without the password.
func distrusted(t *testing.T, err error, says ...string) {
	t.Helper()
	if pipeline.KindOf(err) != pipeline.KindInvalid || strings.Contains(err.Error(), "hidden-word") {
		t.Fatalf("got %v", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, want it to say %q", err, text)
		}
	}
}

// Only the right certificate is believed, whatever form the URL of Redis has.
func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	ours, theirs, database := newAuthority(t), newAuthority(t), testkit.Database(t)
	good, named := ours.redis("127.0.0.1", 24*time.Hour), ours.redis("other.example.com", 24*time.Hour)
	expired := ours.redis("127.0.0.1", time.Minute)
	at := func(port string) string { return "rediss://:hidden-word@127.0.0.1:" + port }
	ok(t, reach(t, at(good), ours.file, database))
	distrusted(t, reach(t, at(good), theirs.file, database), "unknown CA", "REDIS_CA_FILE")
	distrusted(t, reach(t, at(good), "", database), "unknown CA", "REDIS_CA_FILE")
	distrusted(t, reach(t, at(named), ours.file, database), "another name", "use a name that")
	distrusted(t, reach(t, at(expired), ours.file, database), "not valid now")
	// Of several addresses each is verified under its own name, and not under the first one's.
	opts, err := config.RedisOptions("rediss+cluster://a.example.com:1,b.example.com:2")
	ok(t, err)
	if opts.TLSConfig == nil || opts.TLSConfig.ServerName != "" {
		t.Errorf("every server would have to be %q", opts.TLSConfig.ServerName)
	}
	cfg := config.Config{RedisURL: "rediss://:hidden-word@127.0.0.1:" + good}
	rdb, err := process.OpenRedis(cfg)
	ok(t, err)
	defer func() { _ = rdb.Close() }()
	subscription := rdb.Subscribe(t.Context(), "news")
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.Receive(t.Context()); config.Distrust(err, "Redis", "") == "" {
		t.Errorf("a subscription without the CA: got %v", err)
	}
}

// The address of Postgres says with sslmode and sslrootcert what is believed.
func TestPostgresOverTLS(t *testing.T) {
	t.Parallel()
	ours, theirs, redis := newAuthority(t), newAuthority(t), testkit.PrivateRedis(t)
	// Its port is fixed, so it gets an address of its own.
	host := fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(250), mathrand.IntN(250), 2+mathrand.IntN(250))
	postgres := testkit.PrivatePostgres(t, "listen_addresses = '"+host+"'")
	owner, err := os.Stat(postgres.Dir())
	ok(t, err)
	account, known := owner.Sys().(*syscall.Stat_t)
	if !known {
		t.Skip("needs to give a file to the server's user")
	}
	conn, err := pgx.Connect(t.Context(), postgres.URL())
	ok(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	// shows has new sessions get a certificate.
	shows := func(name string, valid time.Duration) {
		t.Helper()
		cert, key := ours.server(name, valid)
		ok(t, os.Chown(key, int(account.Uid), int(account.Gid)))
		ok(t, os.Chmod(key, 0o600))
		for _, statement := range []string{
			"alter system set ssl_cert_file = '" + cert + "'", "alter system set ssl_key_file = '" + key + "'",
			"alter system set ssl = on", "select pg_reload_conf()",
		} {
			_, err := conn.Exec(t.Context(), statement)
			ok(t, err)
		}
	}
	ask := func(ca string) error {
		return reach(t, redis.URL(), "", "postgres://sluice:hidden-word@"+host+
			"/sluice?sslmode=verify-full&sslrootcert="+ca)
	}
	// A reload takes effect a moment later.
	becomes := func(name string, valid time.Duration, ca string, says ...string) {
		t.Helper()
		shows(name, valid)
		testkit.Eventually(t, time.Minute, "the certificate for "+name, func() bool {
			why := config.Distrust(ask(ca), "Postgres", config.PostgresAuthority)
			return !slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(why, text) })
		})
		if len(says) > 0 {
			distrusted(t, ask(ca), says...)
		}
	}
	becomes("other.example.com", 24*time.Hour, ours.file, "another name")
	becomes(host, time.Minute, ours.file, "not valid now")
	becomes(host, 24*time.Hour, theirs.file, "unknown CA", "sslrootcert")
	ok(t, ask(ours.file))
}
