package prometheus_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/db"
	"sluice/internal/buyers"
	"sluice/internal/localservers"
	"sluice/internal/programs"
	"sluice/internal/testkit"
)

const (
	startLimit = 3 * time.Minute
	patience   = 3 * time.Minute // a busy machine is no fault
	lookEvery  = 200 * time.Millisecond
	price      = 500
	// streamLimit is STREAM_MAX_LAG, so that a backlog is long soon.
	streamLimit = 60
)

// site is an installation: private servers, one api and one worker, with one partition.
type site struct {
	*testing.T
	servers *localservers.Servers
	rdb     *redis.Client
	pool    *pgxpool.Pool
	client  *http.Client
	journal string
	cert    string // directory of the api's certificate
	secret  string // of the payment provider
	token   string // of the operator

	api, worker *programs.Process

	mu    sync.Mutex // protects the rest
	lines []string   // that the programs complained of
}

// newSite starts one. The journal is a directory; empty: one beside the servers.
func newSite(t *testing.T, journal string) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	servers, err := localservers.StartWithClocks(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, servers.Close()) })
	must(t, db.Migrate(ctx, servers.Postgres.URL()))
	s := &site{
		T: t, servers: servers, rdb: testkit.Client(t, servers.Redis.URL()), journal: journal, cert: t.TempDir(),
		secret: buyers.NewSecret(), token: rand.Text() + rand.Text(),
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is our own, of a moment ago
		}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.pool, err = pgxpool.New(ctx, servers.Postgres.URL())
	must(t, err)
	t.Cleanup(s.pool.Close)
	s.certify(365)
	t.Cleanup(s.printTrouble)
	s.api, s.worker = s.launch("api"), s.launch("worker")
	s.waitFor("the partition to be verified", func() bool {
		return strings.Contains(s.scrape(s.api), `sluice_redis_trusted{partition="p00"} 1`)
	})
	return s
}

// launch starts a program and returns when it is ready.
func (s *site) launch(kind string) *programs.Process {
	s.Helper()
	environ := append(programs.Environ(), "REDIS_URL="+s.servers.Redis.URL(), "DATABASE_URL="+s.servers.Postgres.URL(),
		"PARTITIONS=1", "DURABILITY=fsync", "LOG_FORMAT=json", "ADMIN_ADDR=127.0.0.1:0", "WEBHOOK_ALLOW_PRIVATE=true")
	if kind == "api" {
		environ = append(environ, "AUTH_MODE=dev", "HTTP_ADDR=127.0.0.1:0", "ADMIN_TOKEN="+s.token,
			"PAYMENT_WEBHOOK_SECRET="+s.secret, "STREAM_MAX_LAG="+strconv.Itoa(streamLimit),
			"RATE_LIMIT_CLIENT=off", "HTTP_TLS_CERT_FILE="+filepath.Join(s.cert, "cert.pem"),
			"HTTP_TLS_KEY_FILE="+filepath.Join(s.cert, "key.pem"))
		if s.journal != "" {
			environ = append(environ, "ACCEPT_JOURNAL="+s.journal)
		}
	}
	p, err := programs.Launch(s.servers, programs.Program{
		Name: kind, Args: []string{kind}, Environ: environ, OnLine: s.heard,
	})
	must(s.T, err)
	must(s.T, p.Await(s.Context()))
	return p
}

func (s *site) heard(line programs.Line) {
	if !line.Serious() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line.Process+": "+line.Text())
}

func (s *site) printTrouble() {
	if s.Failed() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Logf("what the programs complained of, at the end:\n%s", strings.Join(s.lines[max(0, len(s.lines)-30):], "\n"))
	}
}

// scrape returns what Prometheus gets; empty if there is no answer.
func (s *site) scrape(p *programs.Process) string {
	s.Helper()
	status, answer := s.call(http.MethodGet, p.AdminURL()+"/metrics", http.Header{}, "")
	if status != http.StatusOK {
		return ""
	}
	return string(answer)
}

// call returns the status 0 where there was no answer.
func (s *site) call(method, url string, header http.Header, body string) (status int, answer []byte) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, url, strings.NewReader(body))
	must(s.T, err)
	request.Header = header
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }() // it was read
	answer, _ = io.ReadAll(response.Body)
	return response.StatusCode, answer
}

// operator calls the admin API, and fails the test if that refuses.
func (s *site) operator(method, path, body string, into any) {
	s.Helper()
	header := http.Header{"Authorization": {"Bearer " + s.token}}
	status, answer := s.call(method, s.api.AdminURL()+"/admin/v1/"+path, header, body)
	if status/100 != 2 {
		s.Fatalf("%s %s: got %d, %s", method, path, status, answer)
	}
	if into != nil {
		must(s.T, json.Unmarshal(answer, into))
	}
}

func (s *site) createSale(id string, total int) {
	s.Helper()
	sale, err := json.Marshal(map[string]any{
		"id": id, "total": total, "unit_price": price, "currency": "EUR", "waitlist": 10,
	})
	must(s.T, err)
	s.operator(http.MethodPost, "sales", string(sale), nil)
}

// order asks for a unit, and returns the status and, of an order that was accepted, its id.
func (s *site) order(sale, user string) (status int, id string) {
	s.Helper()
	status, answer := s.call(http.MethodPost, s.api.URL()+"/v1/sales/"+sale+"/orders", buyer(user), "")
	var receipt struct {
		ID string `json:"order_id"`
	}
	if status == http.StatusAccepted {
		must(s.T, json.Unmarshal(answer, &receipt))
	}
	return status, receipt.ID
}

func buyer(user string) http.Header { return http.Header{"X-User-Id": {user}} }

// orders asks for so many units at once, for new buyers.
func (s *site) orders(sale, crowd string, n int) {
	s.Helper()
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() { s.order(sale, crowd+strconv.Itoa(i)) })
	}
	asking.Wait()
}

// pay reports that an order was paid.
func (s *site) pay(sale, order, user string) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"type": "payment.succeeded", "data": map[string]any{
		"payment_id": "pay-" + user, "sale_id": sale, "order_id": order, "user_id": user, "amount": price,
		"currency": "EUR",
	}})
	must(s.T, err)
	signer, err := standardwebhooks.NewWebhook(s.secret)
	must(s.T, err)
	now := time.Now()
	signature, err := signer.Sign("msg-"+user, now, body)
	must(s.T, err)
	header := http.Header{}
	header.Set(standardwebhooks.HeaderWebhookID, "msg-"+user)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	if status, answer := s.call(http.MethodPost, s.api.URL()+"/v1/webhooks/payments", header, string(body)); status/100 != 2 {
		s.Fatalf("the payment: got %d, %s", status, answer)
	}
}

// certify gives the api a certificate for so many days.
func (s *site) certify(days int) {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(s.T, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(days)), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(days) * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(s.T, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(s.T, err)
	for name, block := range map[string]*pem.Block{
		"key.pem": {Type: "PRIVATE KEY", Bytes: private}, "cert.pem": {Type: "CERTIFICATE", Bytes: der},
	} {
		var text bytes.Buffer
		must(s.T, pem.Encode(&text, block))
		path := filepath.Join(s.cert, name)
		must(s.T, os.WriteFile(path+".new", text.Bytes(), 0o600))
		must(s.T, os.Rename(path+".new", path))
	}
}
