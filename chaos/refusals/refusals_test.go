package refusals_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

const (
	refusedFor = 3 * time.Second
	// healLimit is generous: a busy machine is no fault. On an idle one all heal within five seconds.
	healLimit = 20 * time.Second
	// standstill is the shortest time without an accept, or without a row, that /readyz must have told of.
	standstill = 2500 * time.Millisecond
	warmUp     = 4 * time.Second
	// everyRefusal in SLUICE_REFUSALS asks for all of them.
	everyRefusal = "all"
)

var (
	users      = []string{"api", "worker"}
	everything = []any{"on", ">secret", "allkeys", "allchannels", "+@all"}
	// keyKinds are all keys of pipeline/keys.go.
	keyKinds = []string{
		"sluice:{p??}:sale:*", "sluice:{p??}:buyers:*", "sluice:{p??}:waitlist:*", "sluice:{p??}:waiting:*",
		"sluice:{p??}:orders", "sluice:{p??}:lock:*", "sluice:{p??}:worker:*", "sluice:{p??}:trusted",
		"sluice:{p??}:installation", "sluice:{p??}:generation", "sluice:{p??}:staged:*", "sluice:{p??}:marker",
		"sluice:{jobs}:*", "sluice:{seq}:*",
	}
)

// refusal is one thing that Redis refuses.
type refusal struct {
	what  string
	users []string
	rules []any // of the refused users; what everything changes is restored by it
	kill  bool  // their connections
}

func (r *rig) acl(user string, rules ...any) {
	r.Helper()
	must(r.T, r.rdb.Do(context.Background(), append([]any{"ACL", "SETUSER", user}, rules...)...).Err())
}

// commands are those that the programs have used, as the server counted them.
func (r *rig) commands() []string {
	r.Helper()
	stats, err := r.rdb.Info(r.Context(), "commandstats").Result()
	must(r.T, err)
	var commands []string
	for line := range strings.Lines(stats) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if ok && !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, "acl") && name != "client|kill" {
			commands = append(commands, name)
		}
	}
	slices.Sort(commands)
	if len(commands) < 20 {
		r.Fatalf("the programs used only %q", commands)
	}
	return commands
}

func command(name string) refusal {
	return refusal{what: "command " + name, users: users, rules: []any{"-" + name}}
}

func key(kind string) refusal {
	rules := []any{"resetkeys"}
	for _, other := range keyKinds {
		if other != kind {
			rules = append(rules, "~"+other)
		}
	}
	return refusal{what: "keys " + kind, users: users, rules: rules}
}

func user(name string) []refusal {
	return []refusal{
		{what: "user " + name + " off", users: []string{name}, rules: []any{"off"}, kill: true},
		{what: "password of " + name, users: []string{name}, rules: []any{"resetpass", ">another"}, kill: true},
		{what: "all commands of " + name, users: []string{name}, rules: []any{"-@all"}},
		{what: "all keys of " + name, users: []string{name}, rules: []any{"resetkeys"}},
	}
}

func (r *rig) refusals() []refusal {
	if os.Getenv("SLUICE_REFUSALS") != everyRefusal {
		return []refusal{
			command("hset"), command("xreadgroup"), key("sluice:{p??}:orders"), user("api")[0], user("worker")[1],
		}
	}
	var all []refusal
	for _, name := range users {
		all = append(all, user(name)...)
	}
	all = append(all, refusal{what: "channels", users: users, rules: []any{"resetchannels"}, kill: true})
	for _, kind := range keyKinds {
		all = append(all, key(kind))
	}
	for _, name := range r.commands() {
		all = append(all, command(name))
	}
	return all
}

// measured is what came of a refusal.
type measured struct {
	withoutAccept, withoutRow time.Duration // the longest, from the beginning to the end
	// From the restoration to the first accept, and until an order since then and all orders before have their rows.
	accepts, rows       time.Duration
	apiTold, workerTold bool // that they are not ready
}

func TestRefusals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the best part of a minute")
	}
	t.Parallel()
	r := newRig(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	defer func() { stop(); <-ended }()
	r.healed(time.Now().Add(warmUp)) // everything that the programs do was done once

	table := []string{fmt.Sprintf("%-34s %9s %9s %9s %9s  %s",
		"refused", "no accept", "no row", "accepts", "rows", "/readyz")}
	for _, refused := range r.refusals() {
		m := r.refuse(refused)
		told := ""
		if m.apiTold {
			told += "api 503 "
		}
		if m.workerTold {
			told += "worker 503 "
		}
		if m.withoutAccept >= standstill && !m.apiTold {
			told += "API LIES"
			t.Errorf("%s: no order was accepted for %s, and the api said that it is ready", refused.what, m.withoutAccept)
		}
		if m.withoutRow >= standstill && !m.workerTold {
			told += "WORKER LIES"
			t.Errorf("%s: an accept had no row for %s, and the worker said that it is ready", refused.what, m.withoutRow)
		}
		table = append(table, fmt.Sprintf("%-34s %8.1fs %8.1fs %8.1fs %8.1fs  %s", refused.what,
			m.withoutAccept.Seconds(), m.withoutRow.Seconds(), m.accepts.Seconds(), m.rows.Seconds(), told))
	}
	stop()
	<-ended
	t.Log("seconds without an accept, the longest of an accept without a row, and from the restoration to an accept, " +
		"and to the rows of all before and one after:\n" + strings.Join(table, "\n"))
	r.settled()
}

// refuse has something refused for a while, and returns when both programs are healed.
func (r *rig) refuse(what refusal) measured {
	r.Helper()
	began := time.Now()
	r.mu.Lock()
	r.oldest = 0
	r.mu.Unlock()
	for _, name := range what.users {
		r.acl(name, what.rules...)
		if what.kill {
			must(r.T, r.rdb.Do(r.Context(), "CLIENT", "KILL", "USER", name).Err())
		}
	}
	time.Sleep(refusedFor) // this is the refusal, nothing is waited for
	for _, name := range what.users {
		r.acl(name, append([]any{"resetpass"}, everything...)...)
	}
	restored := time.Now()
	m := r.healed(restored)
	r.alive()
	r.mu.Lock()
	defer r.mu.Unlock()
	m.withoutRow = r.oldest
	last := began
	for _, a := range r.accepts {
		if a.got.After(began) {
			m.withoutAccept, last = max(m.withoutAccept, a.got.Sub(last)), a.got
		}
	}
	m.apiTold, m.workerTold = r.unready["api"].After(began), r.unready["worker"].After(began)
	if m.accepts > healLimit || m.rows > healLimit {
		r.Errorf("%s: orders after %s, rows after %s, want both within %s", what.what, m.accepts, m.rows, healLimit)
	}
	return m
}

// healed waits until an order that was sent after some instant has its row, as everything has that was told before, and
// both programs are ready.
func (r *rig) healed(after time.Time) (m measured) {
	r.Helper()
	testkit.Eventually(r.T, time.Minute, "orders are accepted, all have rows, and both programs are ready", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if m.rows == 0 {
			m.rows = r.rowSince(after)
		}
		for _, a := range r.accepts {
			if m.accepts == 0 && a.asked.After(after) {
				m.accepts = a.got.Sub(after)
			}
		}
		return m.rows > 0 && r.ready["api"].After(after) && r.ready["worker"].After(after)
	})
	return m
}

// rowSince needs mu. It returns how long after an instant an order that was sent since had its row, once that is so and
// no order that was told before is without one; 0 before.
func (r *rig) rowSince(after time.Time) time.Duration {
	for _, told := range r.rowless {
		if told.Before(after) {
			return 0
		}
	}
	for _, a := range r.accepts {
		if a.asked.After(after) && !r.rows[a.id].IsZero() {
			return time.Since(after)
		}
	}
	return 0
}
