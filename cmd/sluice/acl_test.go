package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/db"
	"sluice/internal/acl"
	"sluice/internal/localservers"
	"sluice/internal/testkit"
	"sluice/pipeline/redisstore"
)

// restricted is an installation whose programs have a user of Redis each.
type restricted struct {
	*testing.T
	servers *localservers.Servers
	admin   *redis.Client
	at      map[acl.Role][]string // settings
	url     map[acl.Role]string
	api     string
}

func newRestricted(t *testing.T, asFunctions bool) *restricted {
	t.Helper()
	servers, err := localservers.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = servers.Close() })
	must(t, db.Migrate(t.Context(), servers.Postgres.URL()))
	r := &restricted{
		T: t, servers: servers, admin: testkit.Client(t, servers.Redis.URL()), at: map[acl.Role][]string{},
		url: map[acl.Role]string{},
	}
	for _, role := range acl.Roles {
		r.url[role] = strings.Replace(servers.Redis.URL(), "unix://", "unix://shop-"+string(role)+":"+string(role)+"@", 1)
		r.at[role] = []string{
			"REDIS_URL=" + r.url[role], "DATABASE_URL=" + servers.Postgres.URL(), "SLUICE_ACTOR=ann",
			fmt.Sprintf("REDIS_FUNCTIONS=%t", asFunctions), "HTTP_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
			"ACCEPT_JOURNAL=" + t.TempDir(), "CLAIM_MIN_IDLE=2s", "LOCK_TTL=1500ms", "BATCH_DEADLINE=1s", "MAX_DELIVERIES=2",
		}
	}
	r.provide(asFunctions)
	return r
}

// provide does on a server what its operators do before the programs start.
func (r *restricted) provide(asFunctions bool) {
	r.Helper()
	args := []string{"acl", "--prefix", "shop-"}
	if asFunctions {
		args = append(args, "--functions")
		full := []string{"REDIS_URL=" + r.servers.Redis.URL(), "DATABASE_URL=" + r.servers.Postgres.URL()}
		sluice(r.T, full, "functions", "load").mustFine(r.T)
	}
	features, err := redisstore.Probe(r.Context(), r.admin)
	must(r.T, err)
	if features.WaitAOF {
		args = append(args, "--newer")
	}
	for line := range strings.Lines(sluice(r.T, nil, args...).mustFine(r.T)) {
		words := strings.Fields(line)
		var command []any
		for _, word := range append(words, ">"+strings.TrimPrefix(words[2], "shop-")) {
			command = append(command, word)
		}
		must(r.T, r.admin.Do(r.Context(), command...).Err())
	}
}

// serve runs a program, and returns its output and what kills it.
func (r *restricted) serve(role acl.Role) (out *testkit.Log, kill func()) {
	r.Helper()
	out = &testkit.Log{}
	cmd := program(context.WithoutCancel(r.Context()), r.at[role], string(role))
	cmd.Stdout, cmd.Stderr = out, out
	must(r.T, cmd.Start())
	end := func(s syscall.Signal) {
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait() // how it ended is in its output
	}
	r.Cleanup(func() {
		end(syscall.SIGTERM)
		if r.Failed() {
			r.Logf("%s:\n%s", role, out.String())
		}
	})
	return out, func() { end(syscall.SIGKILL) }
}

// serveAPI is serve for an api that takes orders.
func (r *restricted) serveAPI() (kill func()) {
	r.Helper()
	out, kill := r.serve(acl.API)
	operations := find(r.T, out, `"api operations" url=(\S+)`)
	r.api = find(r.T, out, `"api listening" url=(\S+)`) + "/v1/sales/drop-1/"
	r.eventually("the api to be ready", func() bool {
		status, _ := r.call(http.MethodGet, operations+"/readyz", "", "")
		return status == http.StatusOK
	})
	return kill
}

func (r *restricted) eventually(what string, is func() bool) {
	r.Helper()
	testkit.Eventually(r.T, 20*time.Second, what, is)
}

func (r *restricted) call(method, url, buyer, body string) (status int, answer string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
	must(r.T, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User-Id", buyer)
	response, err := (&http.Client{Timeout: commandLimit}).Do(request)
	must(r.T, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(r.T, err)
	return response.StatusCode, string(text)
}

// mustBecome orders, or joins the waitlist, and waits for what becomes of it. It returns the order's id.
func (r *restricted) mustBecome(path, buyer, want string) string {
	r.Helper()
	status, answer := r.call(http.MethodPost, r.api+path, buyer, `{"quantity":1}`)
	if status != http.StatusAccepted {
		r.Fatalf("%s of %s: got %d %s", path, buyer, status, answer)
	}
	id := decoded[struct {
		ID string `json:"order_id"`
	}](r.T, answer).ID
	r.becomes(id, buyer, want)
	return id
}

func (r *restricted) becomes(id, buyer, want string) {
	r.Helper()
	r.eventually(buyer+"'s order to become "+want, func() bool {
		_, answer := r.call(http.MethodGet, r.api+"orders/"+id, buyer, "")
		return strings.Contains(answer, `"status":"`+want+`"`)
	})
}

func (r *restricted) run(args ...string) string {
	r.Helper()
	return sluice(r.T, r.at[acl.Operator], args...).mustFine(r.T)
}

// TestProgramsNeedNoMore: what happens in an installation happens with the rights that `sluice acl` prints, whether
// scripts are sent or are functions; and each program is refused everything else.
func TestProgramsNeedNoMore(t *testing.T) {
	t.Parallel()
	for name, asFunctions := range map[string]bool{"scripts": false, "functions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestricted(t, asFunctions)
			t.Cleanup(r.nothingWasDenied)
			r.live(asFunctions)
			r.nothingWasDenied()
			r.mustRefuse(asFunctions)
		})
	}
}

// nothingWasDenied looks at what Redis refused since the last time.
func (r *restricted) nothingWasDenied() {
	r.Helper()
	denied, err := r.admin.ACLLog(context.WithoutCancel(r.Context()), 128).Result()
	must(r.T, err)
	for _, entry := range denied {
		r.Errorf("denied, %d times: %s %s %s", entry.Count, entry.Username, entry.Reason, entry.Object)
	}
	must(r.T, r.admin.ACLLogReset(context.WithoutCancel(r.Context())).Err())
}

// live is a sale with orders, a waitlist, an order that can't be read, workers and apis that die, and a Redis that
// loses its data.
func (r *restricted) live(asFunctions bool) {
	r.Helper()
	stopAPI := r.serveAPI()
	_, killWorker := r.serve(acl.Worker)
	r.run("sale", "create", "--id", "drop-1", "--title", "Drop", "--stock", "3", "--waitlist", "10", "--opens", "now",
		"--closes", "+1h")
	ann := r.mustBecome("orders", "ann", "awaiting_payment")
	r.mustBecome("orders", "bob", "awaiting_payment")
	r.mustBecome("orders", "cid", "awaiting_payment")
	dan := r.mustBecome("waitlist", "dan", "waiting")
	r.mustBecome("waitlist", "eve", "waiting")
	if status, answer := r.call(http.MethodDelete, r.api+"waitlist", "eve", ""); status >= 300 {
		r.Errorf("eve leaves the waitlist: got %d %s", status, answer)
	}
	if status, answer := r.call(http.MethodPost, r.api+"orders/"+ann+"/cancel", "ann", "{}"); status >= 300 {
		r.Errorf("cancel: got %d %s", status, answer)
	}
	r.becomes(dan, "dan", "awaiting_payment")
	r.run("order", "pay", dan, "--sale", "drop-1")
	r.run("order", "return", dan, "--sale", "drop-1", "--restock", "--reason", "a test")
	r.run("sale", "restock", "drop-1", "--add", "5")
	r.run("sale", "pause", "drop-1")
	r.run("sale", "resume", "drop-1")
	r.spoil()

	killWorker()
	fay := r.mustBecome("orders", "fay", "queued")
	r.serve(acl.Worker)
	r.becomes(fay, "fay", "awaiting_payment")
	for _, args := range [][]string{
		{"stream"},
		{"pending"},
		{"workers"},
		{"sale", "show", "drop-1"},
		{"order", "show", fay, "--sale", "drop-1"},
		{"audit"},
		{"rebuild", "--sale", "drop-1"},
		{"journal", "ls"},
	} {
		r.run(args...)
	}
	r.mustExamineUsers()
	must(r.T, r.admin.FlushAll(r.Context()).Err())
	r.eventually("a rebuild after the loss", func() bool {
		status, _ := r.call(http.MethodPost, r.api+"orders", "gil", `{"quantity":1}`)
		return status == http.StatusAccepted
	})
	r.run("rebuild", "--sale", "drop-1", "--apply")
	stopAPI()
	r.serveAPI()
	r.mustBecome("orders", "hal", "awaiting_payment")
	r.run("sale", "close", "drop-1")
	r.eventually("a clean audit", func() bool { return sluice(r.T, r.at[acl.Operator], "audit").code == 0 })
	if asFunctions {
		r.run("doctor")
	}
}

// mustExamineUsers: the doctor finds the programs that are connected, that they have what they need, and that the test
// has more.
func (r *restricted) mustExamineUsers() {
	r.Helper()
	must(r.T, r.admin.Ping(r.Context()).Err())
	out := r.run("doctor")
	exact, tooMuch, _ := strings.Cut(out[strings.Index(out, "Redis users"):], "beyond the pipeline's work; default may empty")
	for _, program := range []string{"shop-operator, ", "shop-api, ", "shop-worker, "} {
		if !strings.Contains(exact, program) || tooMuch == "" {
			r.Errorf("got %q, want it to name %q and default", out, program)
		}
	}
}

// spoil has an event arrive that no worker can read, until it is a dead letter that an operator discards.
func (r *restricted) spoil() {
	r.Helper()
	streams, err := r.admin.Keys(r.Context(), "sluice:{p*}:orders").Result()
	must(r.T, err)
	must(r.T, r.admin.XAdd(r.Context(), &redis.XAddArgs{Stream: streams[0], Values: []string{"k", "x", "v", "1"}}).Err())
	r.eventually("the dead letter", func() bool { return strings.Contains(r.run("dead-letter", "ls"), "1") })
	r.run("dead-letter", "discard", "1", "--note", "a test")
}

// refusal is what Redis says to a user without a right, and to a script of such a user.
var refusal = regexp.MustCompile(`^NOPERM|can't run this command|can't access at least one of the keys|^ACL failure`)

// mustRefuse tries, as each user, what only an attacker would.
func (r *restricted) mustRefuse(asFunctions bool) {
	r.Helper()
	defer func() { must(r.T, r.admin.ACLLogReset(r.Context()).Err()) }()
	tries := [][]any{
		{"FLUSHALL"},
		{"FLUSHDB"},
		{"KEYS", "*"},
		{"CONFIG", "SET", "appendonly", "no"},
		{"CONFIG", "REWRITE"},
		{"SHUTDOWN", "NOSAVE"},
		{"ACL", "LIST"},
		{"ACL", "SETUSER", "x"},
		{"REPLICAOF", "h", "1"},
		{"SCRIPT", "FLUSH"},
		{"FUNCTION", "FLUSH"},
		{"FUNCTION", "LOAD", "#!lua name=x\n"},
		{"CLIENT", "KILL", "TYPE", "normal"},
		{"GET", "another:key"},
		{"SET", "another:key", "1"},
		{"MIGRATE", "h", "1", "k", "0", "1"},
		{"MONITOR"},
		{"SAVE"},
		{"PUBLISH", "another", "x"},
		{"XTRIM", "sluice:{p00}:orders", "MAXLEN", "0"},
		{"SWAPDB", "0", "1"},
	}
	if asFunctions {
		tries = append(tries, []any{"EVAL", "return 1", 0}, []any{"EVAL_RO", "return 1", 0},
			[]any{"EVALSHA", strings.Repeat("0", 40), 0}, []any{"SCRIPT", "LOAD", "return 1"})
	} else {
		tries = append(tries, []any{"EVAL", "return redis.call('FLUSHALL')", 0},
			[]any{"EVAL", "return redis.call('GET', 'another:key')", 0})
	}
	for _, role := range acl.Roles {
		rdb := testkit.Client(r.T, r.url[role])
		for _, try := range tries {
			err := rdb.Do(r.Context(), try...).Err()
			if err == nil || !refusal.MatchString(err.Error()) {
				r.Errorf("%s as %s: got %v, want NOPERM", try, role, err)
			}
		}
	}
}
