package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/internal/view"
)

// vault is the secrets of an installation, and everything that was printed while it ran.
type vault struct {
	*testing.T
	secrets map[string]string // by what they are
	printed map[string]string // by where
}

// make makes a random secret and keeps it.
func (v *vault) make(what string) string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	v.secrets[what] = base64.StdEncoding.EncodeToString(key)
	return v.secrets[what]
}

// forms are how a secret could appear: as it is, without its prefix, as the bytes of its base64, and in URLs.
func forms(secret string) [][]byte {
	body := strings.TrimPrefix(secret, "whsec_")
	all := [][]byte{[]byte(secret), []byte(body)}
	if key, err := base64.StdEncoding.DecodeString(body); err == nil {
		all = append(all, key, fmt.Appendf(nil, "%x", key))
	}
	return append(all, []byte(strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(body)))
}

// mustBeNowhere looks for every secret in a text.
func (v *vault) mustBeNowhere(where string, text []byte) {
	v.Helper()
	for what, secret := range v.secrets {
		for _, form := range forms(secret) {
			if at := bytes.Index(text, form); at >= 0 {
				v.Errorf("%s has %s: …%q", where, what, text[max(0, at-80):at])
			}
		}
	}
}

// run is `sluice`, whose output is looked through like everything else.
func (v *vault) run(settings []string, args ...string) outcome {
	v.Helper()
	got := sluice(v.T, settings, args...)
	v.printed["sluice "+strings.Join(args, " ")] += got.out + got.err
	return got
}

// call sends a request, and keeps what is answered.
func (v *vault) call(method, url, body string, header ...string) (status int, answer string) {
	v.Helper()
	request, err := http.NewRequestWithContext(v.Context(), method, url, strings.NewReader(body))
	must(v.T, err)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := (&http.Client{Timeout: commandLimit}).Do(request)
	must(v.T, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(v.T, err)
	v.printed[method+" "+url] += fmt.Sprint(response.Header) + string(text)
	return response.StatusCode, string(text)
}

// serve runs a program until the test ends, and returns its output.
func (v *vault) serve(settings []string, name string) *testkit.Log {
	v.Helper()
	out := &testkit.Log{}
	cmd := program(context.WithoutCancel(v.Context()), settings, name)
	cmd.Stdout, cmd.Stderr = out, out
	must(v.T, cmd.Start())
	v.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ended is in its output
		v.mustBeNowhere("the log of "+name, []byte(out.String()))
		if v.Failed() {
			v.Logf("%s:\n%s", name, out.String())
		}
	})
	return out
}

// find waits until a log matches, and returns what the first group of the pattern is there.
func find(t *testing.T, log *testkit.Log, pattern string) string {
	t.Helper()
	sought := regexp.MustCompile(pattern)
	testkit.Eventually(t, commandLimit, pattern, func() bool { return sought.MatchString(log.String()) })
	return sought.FindStringSubmatch(log.String())[1]
}

// tokenOf is a token of a buyer, signed with the secret of JWT_KEY.
func (v *vault) tokenOf(key, buyer string) string {
	encode := base64.RawURLEncoding.EncodeToString
	body := encode([]byte(`{"alg":"HS256"}`)) + "." + encode(fmt.Appendf(nil,
		`{"iss":"i","aud":"a","sub":%q,"exp":%d}`, buyer, time.Now().Add(time.Hour).Unix()))
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(body))
	token := body + "." + encode(mac.Sum(nil))
	v.secrets["the token of "+buyer] = token
	return token
}

// TestNoSecretIsLeftAnywhere runs an installation whose every setting is secret, at its most talkative, lets things go
// well and wrong, and then looks for each secret in everything that it printed, answered and stored.
func TestNoSecretIsLeftAnywhere(t *testing.T) {
	t.Parallel()
	v := &vault{T: t, secrets: map[string]string{}, printed: map[string]string{}}
	servers, err := localservers.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = servers.Close() })
	at := v.settings(servers)
	v.run(at, "migrate").mustFine(t)

	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	v.secretsOfCommands(at, receiver.URL)
	api, worker := v.serve(at, "api"), v.serve(at, "worker")
	public, operations := find(t, api, `"api listening" url=(\S+)`), find(t, api, `"api operations" url=(\S+)`)
	v.run(at, "sale", "create", "--id", "drop-2", "--stock", "10", "--entry-ticket").mustFine(t)
	v.run(at, "sale", "create", "--id", "drop-1", "--title", "Drop", "--stock", "10", "--opens", "now", "--closes", "+1h",
		"--price", "1999", "--currency", "EUR").mustFine(t)
	order := v.buy(public)
	v.pay(public, order)
	v.administer(operations)
	v.goWrong(servers, at, public, api, worker)

	v.look(find(t, worker, `"worker operations" url=(\S+)`) + "/metrics")
	for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/cmdline", "/debug/vars", "/"} {
		v.look(operations + path)
	}
	for _, args := range [][]string{
		{"log"},
		{"log", "--json"},
		{"event", "ls", "--json"},
		{"endpoint", "ls", "--json"},
		{"doctor", "--json"},
		{"token", "ls", "--json"},
		{"payment", "ls", "--json"},
		{"order", "ls", "--json"},
		{"audit"},
	} {
		v.run(at, args...)
	}
	v.lookAtProcesses()
	v.lookAtFiles(servers, order)
	for where, text := range v.printed {
		v.mustBeNowhere(where, []byte(text))
	}
}

// settings makes all secrets that are settings.
func (v *vault) settings(servers *localservers.Servers) []string {
	v.Helper()
	redisPassword, postgresPassword := uuid.NewString(), uuid.NewString()
	v.secrets["the password of Redis"], v.secrets["the password of Postgres"] = redisPassword, postgresPassword
	admin := testkit.Client(v.T, servers.Redis.URL())
	must(v.T, admin.ACLSetUser(v.Context(), "shop", "on", ">"+redisPassword, "~*", "&*", "+@all").Err())
	files := v.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(files, name)
		must(v.T, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return name + "_FILE=" + path
	}
	key := v.make("JWT_KEY")
	return []string{
		"REDIS_URL=" + strings.Replace(servers.Redis.URL(), "unix://", "unix://shop:"+redisPassword+"@", 1),
		"DATABASE_URL=" + strings.Replace(servers.Postgres.URL(), "sluice@", "sluice:"+postgresPassword+"@", 1),
		file("ADMIN_TOKEN", v.make("ADMIN_TOKEN")), file("ENCRYPTION_KEYS", "k1:"+v.make("ENCRYPTION_KEYS")),
		file("ENTRY_TICKET_KEYS", "k1:"+v.make("ENTRY_TICKET_KEYS")), "ENTRY_HOOK_FAIL=open",
		"ENTRY_HOOK_URL=http://shop:" + v.hook() + "@127.0.0.1:1/entry", // where nothing answers
		"PAYMENT_WEBHOOK_SECRET=whsec_" + v.make("PAYMENT_WEBHOOK_SECRET"),
		`JWT_KEY={"kty":"oct","alg":"HS256","k":"` + base64.RawURLEncoding.EncodeToString([]byte(key)) + `"}`,
		"AUTH_MODE=jwt", "JWT_ISSUER=i", "JWT_AUDIENCE=a", "JWT_ALGORITHMS=HS256", "WEBHOOK_ALLOW_PRIVATE=true",
		"HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "LOG_LEVEL=debug", "LOG_FORMAT=text", "SLUICE_ACTOR=ann",
		"ACCEPT_JOURNAL=" + filepath.Join(servers.Dir(), "journal"),
	}
}

// hook is the password of the shop's check.
func (v *vault) hook() string {
	v.secrets["the password of the hook"] = uuid.NewString()
	return v.secrets["the password of the hook"]
}

// secretsOfCommands makes those that commands print, once.
func (v *vault) secretsOfCommands(at []string, receiver string) {
	v.Helper()
	added := sluice(v.T, at, "endpoint", "add", "--url", receiver, "--json").mustFine(v.T)
	v.secrets["the endpoint's first secret"] = decoded[view.Endpoint](v.T, added).Secret
	rotated := sluice(v.T, at, "endpoint", "rotate", "1", "--json").mustFine(v.T)
	v.secrets["the endpoint's secret"] = decoded[view.Endpoint](v.T, rotated).Secret
	token := sluice(v.T, at, "token", "add", "bob", "--role", "admin", "--json").mustFine(v.T)
	v.secrets["the token of bob"] = decoded[view.Token](v.T, token).Text
}

// buy orders with a right token and with wrong ones, and returns the order's id.
func (v *vault) buy(public string) string {
	v.Helper()
	orders, bearer := public+"/v1/sales/drop-1/orders", "Bearer "+v.tokenOf(v.secrets["JWT_KEY"], "buyer-1")
	var status int
	var receipt string
	testkit.Eventually(v.T, commandLimit, "an order to be taken", func() bool {
		status, receipt = v.call("POST", orders, `{"quantity":1}`, "Authorization", bearer)
		return status == http.StatusAccepted
	})
	order := decoded[struct {
		ID string `json:"order_id"`
	}](v.T, receipt).ID
	testkit.Eventually(v.T, commandLimit, "the order to be stored", func() bool {
		_, text := v.call("GET", orders+"/"+order, "", "Authorization", bearer)
		return strings.Contains(text, "awaiting_payment")
	})
	if status, answer := v.call("POST", public+"/v1/sales/drop-2/ticket", "", "Authorization", bearer); status != 200 {
		v.Errorf("the entry ticket: got %d %s", status, answer)
	}
	forged := v.tokenOf("another key of thirty-two bytes!", "buyer-2")
	v.call("POST", orders, `{"quantity":1}`, "Authorization", "Bearer "+forged)
	v.call("POST", orders, `{"quantity":1}`, "Authorization", "Basic "+strings.TrimPrefix(bearer, "Bearer "))
	v.call("GET", orders+"/"+order+"?token="+strings.TrimPrefix(bearer, "Bearer "), "")
	return order
}

// pay sends webhooks with the right signature and with wrong ones.
func (v *vault) pay(public, order string) {
	v.Helper()
	body := fmt.Sprintf(`{"type":"payment.succeeded","timestamp":"2026-01-01T00:00:00Z","data":{"payment_id":"pay_1",`+
		`"sale_id":"drop-1","order_id":%q,"amount":1999,"currency":"EUR"}}`, order)
	for _, secret := range []string{"whsec_" + v.make("a wrong secret"), "whsec_" + v.secrets["PAYMENT_WEBHOOK_SECRET"]} {
		key, err := standardwebhooks.NewWebhook(secret)
		must(v.T, err)
		now := time.Now()
		signature, err := key.Sign("msg_1", now, []byte(body))
		must(v.T, err)
		status, answer := v.call("POST", public+"/v1/webhooks/payments", body, standardwebhooks.HeaderWebhookID, "msg_1",
			standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10),
			standardwebhooks.HeaderWebhookSignature, signature)
		if right := secret != "whsec_"+v.secrets["a wrong secret"]; right != (status == http.StatusOK) {
			v.Fatalf("right secret %t: got %d %s", right, status, answer)
		}
	}
}

// administer calls the admin API with right tokens and wrong ones.
func (v *vault) administer(operations string) {
	v.Helper()
	almost := v.secrets["the token of bob"][:len(v.secrets["the token of bob"])-1] + "x"
	v.secrets["a token with a slip"] = almost
	for token, want := range map[string]int{
		v.secrets["ADMIN_TOKEN"]: 200, v.secrets["the token of bob"]: 200, almost: 401, v.make("a guess"): 401,
	} {
		if got, _ := v.call("GET", operations+"/admin/v1/sales", "", "Authorization", "Bearer "+token); got != want {
			v.Errorf("got %d, want %d", got, want)
		}
	}
	v.call("GET", operations+"/admin/v1/sales?token="+v.secrets["ADMIN_TOKEN"], "")
	v.call("POST", operations+"/admin/v1/endpoints/1/test", "{}", "Authorization", "Bearer "+v.secrets["ADMIN_TOKEN"])
}

// goWrong makes servers unreachable and settings wrong.
func (v *vault) goWrong(servers *localservers.Servers, at []string, public string, api, worker *testkit.Log) {
	v.Helper()
	failures := func() int { return strings.Count(api.String()+worker.String(), "level=WARN") }
	before := failures()
	must(v.T, servers.Redis.Pause())
	v.call("POST", public+"/v1/sales/drop-1/orders", `{"quantity":1}`,
		"Authorization", "Bearer "+v.tokenOf(v.secrets["JWT_KEY"], "buyer-3"))
	testkit.Eventually(v.T, commandLimit, "a failure in a log", func() bool { return failures() > before })
	must(v.T, servers.Redis.Resume())
	for _, wrong := range []string{
		"REDIS_URL=redis://shop:" + v.secrets["the password of Redis"] + "@127.0.0.1:1", "REDIS_URL=redis://:" +
			v.secrets["the password of Redis"] + "@h:port",
		"DATABASE_URL=postgres://sluice:" + v.secrets["the password of Postgres"] + "@127.0.0.1:1/sluice",
		"DATABASE_URL=mysql://sluice:" + v.secrets["the password of Postgres"] + "@h/sluice",
		"PAYMENT_WEBHOOK_SECRET=" + v.secrets["PAYMENT_WEBHOOK_SECRET"],
		"JWT_KEY=" + v.secrets["JWT_KEY"], "ENCRYPTION_KEYS=" + v.secrets["ENCRYPTION_KEYS"],
	} {
		settings := slices.DeleteFunc(slices.Clone(at), func(s string) bool {
			return strings.HasPrefix(s, strings.SplitN(wrong, "=", 2)[0])
		})
		settings = append(settings, wrong, "START_TIMEOUT=1s")
		for _, command := range []string{"api", "doctor", "audit"} {
			v.run(settings, command)
		}
	}
	v.run(at, "api", "--admin-token", v.secrets["ADMIN_TOKEN"])
	v.run(at, "audit", "--database-url", setting(at, "DATABASE_URL"))
}

// look keeps what a page says.
func (v *vault) look(url string) {
	v.Helper()
	v.call("GET", url, "")
}

// lookAtProcesses looks through the command lines of all processes.
func (v *vault) lookAtProcesses() {
	v.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(v.T, err)
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil { // else it has ended
			v.mustBeNowhere(path, text)
		}
	}
}

// lookAtFiles looks through all that the servers and the journal have on the disk.
func (v *vault) lookAtFiles(servers *localservers.Servers, order string) {
	v.Helper()
	conn, err := pgx.Connect(v.Context(), servers.Postgres.URL())
	must(v.T, err)
	_, err = conn.Exec(v.Context(), `checkpoint`)
	must(v.T, err)
	must(v.T, conn.Close(v.Context()))
	must(v.T, testkit.Client(v.T, servers.Redis.URL()).Save(v.Context()).Err())
	id := uuid.MustParse(order)
	inPostgres, inRedis, files := false, false, 0
	must(v.T, filepath.Walk(servers.Dir(), func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a file that is gone has nothing
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		files++
		inPostgres = inPostgres || strings.Contains(path, "/base/") && bytes.Contains(text, id[:])
		inRedis = inRedis || strings.Contains(path, "/redis/") && bytes.Contains(text, []byte(order))
		v.mustBeNowhere(strings.TrimPrefix(path, servers.Dir()), text)
		return nil
	}))
	if !inPostgres || !inRedis {
		v.Errorf("of %d files, Postgres' have the order: %t, Redis': %t; so nothing is proved",
			files, inPostgres, inRedis)
	}
}
