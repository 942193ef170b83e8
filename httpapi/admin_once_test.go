package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"sluice/internal/view"
	"sluice/pipeline/idempotency"
	"sluice/pipeline/operator"
)

const key = "Idempotency-Key"

// eachCommand sends every change that takes a key.
func (r *adminRig) eachCommand(send func(call)) {
	r.each(func(c call, _ operator.Role) {
		if c.method != http.MethodGet && !strings.HasSuffix(c.path, "/test") {
			send(c)
		}
	})
}

func giveKeys(r *adminRig) {
	var waiting sync.WaitGroup
	n := 0
	r.eachCommand(func(c call) {
		n++
		c = c.with(key, fmt.Sprintf("key-%d", n))
		if first := r.do(c); first.status >= 500 || first.status == 400 {
			r.t.Errorf("%s: got %d, want an answer that is kept", c.path, first.status)
		}
		other := c.with("Content-Type", "application/json")
		other.body = `{"add":6}`
		r.expect(other, 422, "idempotency-key-reused")

		held := c.with(key, fmt.Sprintf("held-%d", n))
		_, _, err := r.store.ClaimRequest(r.t.Context(), idempotency.NewRequest(held.header.Get(key), "http", held.method,
			held.path, held.body))
		must(r.t, err)
		waiting.Go(func() { // for as long as a second request waits for the first
			if got, err := r.try(held); err != nil || got.status != 409 || got.code() != "idempotency-key-in-use" {
				r.t.Errorf("%s: got %d %s, %v", held.path, got.status, got.body, err)
			}
		})
	})
	waiting.Wait()
	if n < 15 {
		r.t.Errorf("only %d commands take a key", n)
	}
}

func (r *adminRig) total(sale string) int64 {
	r.t.Helper()
	return decode[view.Sale](r.t, r.expect(ask("GET", "sales/"+sale, ""), 200, "")).Total
}

// TestTheSameKeyIsDoneOnce: the same request gets the first answer, another one is refused.
func TestTheSameKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	restock := post("sales/drop-1/restock", `{"add":5}`).with(key, "k1")
	first := r.expect(restock, 200, "")
	r.expect(post("sales/drop-1/pause", ""), 200, "")
	again := r.expect(restock, 200, "")
	if string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" ||
		first.header.Get("Idempotent-Replayed") != "" || r.total("drop-1") != 15 {
		t.Errorf("again: got %s (%v) and a total of %d, want %s", again.body, again.header, r.total("drop-1"), first.body)
	}
	r.expect(post("sales/drop-1/restock", `{"add":6}`).with(key, "k1"), 422, "idempotency-key-reused")
	r.expect(post("sales/drop-2/restock", `{"add":5}`).with(key, "k1"), 422, "idempotency-key-reused")
	r.expect(restock.with(key, "k2"), 200, "")
	r.expect(restock.with(key, ""), 200, "")
	r.expect(restock.with(key, ""), 200, "")
	if got := r.total("drop-1"); got != 30 {
		t.Errorf("the total is %d, want 30", got)
	}
	created := post("sales", `{"id":"drop-3","total":7}`).with(key, "k3")
	for range 2 {
		if got := r.expect(created, 201, "").header.Get("Location"); got != "/admin/v1/sales/drop-3" {
			t.Errorf("got Location %q", got)
		}
	}
	// A refusal is an answer, too.
	r.expect(post("sales/drop-3/close", ""), 200, "")
	closed := post("sales/drop-3/restock", `{"add":5}`).with(key, "k4")
	refused := r.expect(closed, 409, "conflict")
	if again := r.expect(closed, 409, "conflict"); string(again.body) != string(refused.body) {
		t.Errorf("got %s, want %s", again.body, refused.body)
	}
	// What could not be meant leaves the key free.
	r.expect(post("sales/drop-1/restock", `{"add":-5}`).with(key, "k5"), 400, "invalid-request")
	r.expect(post("sales/drop-1/restock", `{"add":5}`).with(key, "k5"), 200, "")
	for _, bad := range []string{" ", strings.Repeat("x", 256), "\x80"} {
		r.expect(restock.with(key, bad+"\x80"), 400, "invalid-request")
	}
}

// TestTheSameKeyAtOnce: of many requests at the same time one is done, and all get its answer.
func TestTheSameKeyAtOnce(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	for round := range 5 {
		var asked sync.WaitGroup
		answers := make([]reply, 8)
		for i := range answers {
			asked.Go(func() {
				var err error
				if answers[i], err = r.try(post("sales/drop-1/restock", `{"add":5}`).with(key, fmt.Sprint(round))); err != nil {
					t.Error(err)
				}
			})
		}
		asked.Wait()
		for _, got := range answers {
			if got.status != 200 || string(got.body) != string(answers[0].body) {
				t.Errorf("got %d %s, want %s", got.status, got.body, answers[0].body)
			}
		}
		if got := r.total("drop-1"); got != 15+5*int64(round) {
			t.Errorf("round %d: the total is %d", round, got)
		}
	}
}

// TestAKeyOutlivesAnOutage: an answer of 5xx is none.
func TestAKeyOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	restock := post("sales/drop-1/restock", `{"add":5}`).with(key, "k1")
	stock := r.keys.Sale(r.stored("drop-1").Partitions[0], "drop-1")
	must(t, r.rdb.Rename(t.Context(), stock, stock+":away").Err())
	r.expect(restock, 503, "sale-not-loaded") // it stands in Postgres
	must(t, r.rdb.Rename(t.Context(), stock+":away", stock).Err())
	for range 2 {
		got := decode[view.Sale](t, r.expect(restock, 200, ""))
		if got.Total != 15 || got.Remaining == nil || *got.Remaining != 15 {
			t.Errorf("got %+v, want 15 units in both stores", got)
		}
	}
	r.postgres.Cut()
	again := restock.with(key, "k2")
	r.expect(again, 503, "store-unavailable")
	r.postgres.Heal()
	r.until(again, 200)
	if got := r.total("drop-1"); got != 20 {
		t.Errorf("the total is %d, want 20", got)
	}
}

// TestAChangeUnderWayIsNoAnswer: what another change forbids for the moment may be asked for again under the same key.
func TestAChangeUnderWayIsNoAnswer(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.create(newSale("drop-1", 10))
	r.exec(`update sales set reduce_to = 5, reduce_actor = 'bob'`)
	for _, c := range []call{
		post("sales/drop-1/restock", `{"add":5}`), post("sales/drop-1/reduce", `{"to":7}`),
		ask(http.MethodPatch, "sales/drop-1", `{"title":"Lamp No. 8"}`),
	} {
		c = c.with(key, c.path)
		for range 2 {
			got := r.expect(c, 409, "conflict")
			if got.header.Get("Retry-After") != "1" || got.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: got %v, want an answer for now", c.path, got.header)
			}
		}
	}
	r.exec(`update sales set reduce_to = null, reduce_actor = null`)
	for range 2 {
		r.expect(post("sales/drop-1/restock", `{"add":5}`).with(key, "/admin/v1/sales/drop-1/restock"), 200, "")
	}
	if got := r.total("drop-1"); got != 15 {
		t.Errorf("the total is %d, want 15", got)
	}
}

// TestSecretsAreNotKept: a repeated request shows the endpoint that the first one registered, with its secret, and no
// copy of that is kept for it.
func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	add := post("endpoints", `{"url":"http://127.0.0.1:1/a"}`).with(key, "k1")
	first := r.expect(add, 201, "")
	secret := same(t, first, "secret")
	kept := r.count(`select count(*) from operator_requests where convert_from(body, 'UTF8') like '%whsec_%'`)
	if !strings.HasPrefix(secret, `"whsec_`) || kept != 0 {
		t.Errorf("%d secrets are kept, of %s", kept, first.body)
	}
	again := r.expect(add, 201, "")
	if same(t, again, "secret") != secret || same(t, again, "id") != same(t, first, "id") ||
		again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("again: got %s, want %s", again.body, first.body)
	}
	taken := post("endpoints", `{"url":"http://127.0.0.1:1/a"}`).with(key, "k2")
	r.expect(taken, 409, "conflict")
	for range 2 {
		r.expect(ask(http.MethodDelete, "endpoints/1", "").with(key, "k3"), 204, "")
	}
	r.expect(add, 404, "unknown-endpoint")
	r.expect(taken, 409, "conflict") // that was its answer
}

// until sends a call until its answer has this status.
func (r *adminRig) until(c call, status int) {
	r.t.Helper()
	for range 50 {
		if r.do(c).status == status {
			return
		}
	}
	r.expect(c, status, "")
}

// TestAProcessThatDiedDidItOnce: whatever is asked for, a process that dies after the change and before its answer is
// kept leads to one change, and to an answer that it was made.
func TestAProcessThatDiedDidItOnce(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	r.expect(post("endpoints", `{"url":"http://127.0.0.1:1/a"}`), 201, "")
	r.expect(post("endpoints", `{"url":"http://127.0.0.1:1/b"}`), 201, "")
	r.expect(post("endpoints/2/disable", ""), 200, "")
	ann, bob := r.paidOrders("drop-1")
	letter, other := r.bury("s=drop-1", "u=cat", "q=1"), r.bury("s=drop-1")
	due := r.due()[0].ID
	_, err := r.worker().SequenceEvents(t.Context(), 100)
	must(t, err)
	r.exec(`update endpoints set cursor = (select max(position) from outbox)`)
	for _, c := range []call{
		post("sales", `{"id":"drop-2","total":7}`),
		post("sales/drop-1/restock", `{"add":5}`),
		post("sales/drop-1/reschedule", `{"closes_at":"2031-01-01T00:00:00Z"}`),
		post("sales/drop-1/pause", ""),
		post("sales/drop-1/resume", ""),
		ask(http.MethodPatch, "sales/drop-1", `{"title":"Lamp No. 8","if_version":5}`),
		post("sales/drop-1/reduce", `{"to":9}`),
		post("sales/drop-1/extend", extendBody(2*60*60*1e9)),
		post(orderCall(bob, "extend"), extendBody(3*60*60*1e9)),
		post(orderCall(ann, "return"), moneyChanges["return"]),
		post("payments/"+due+"/refunded", `{"refund_id":"re_1"}`),
		post("dead-letters/"+letter+"/replay", ""),
		post("dead-letters/"+other+"/discard", `{"note":"a test"}`),
		post("endpoints", `{"url":"http://127.0.0.1:1/c"}`),
		post("endpoints/2/enable", `{"skip_next":true}`),
		post("endpoints/3/disable", ""),
		post("endpoints/1/resend", `{"from":1,"to":3}`),
		post("endpoints/1/replay", `{"from":2}`),
		post("sales/drop-1/close", ""),
		ask(http.MethodDelete, "endpoints/3", ""),
	} {
		c = c.with(key, c.path).with("Authorization", r.as("eve"))
		lines := r.lines()
		first := r.do(c)
		if first.status >= 300 || r.lines() != lines+1 {
			t.Fatalf("%s: got %d %s and %d lines, want a change", c.path, first.status, first.body, r.lines()-lines)
		}
		if strings.HasSuffix(c.path, "/replay") || strings.HasSuffix(c.path, "/resend") {
			r.exec(`delete from resends; update endpoints set cursor = (select max(position) from outbox)`) // all arrived
		}
		if strings.HasSuffix(c.path, "/reduce") { // another operator changes it back
			r.expect(post("sales/drop-1/restock", `{"add":1}`).with("Authorization", r.as("bob")), 200, "")
		}
		if strings.HasSuffix(c.path, "/enable") { // what happens meanwhile is not undone
			r.exec(`update endpoints set disabled_at = now(), disabled_reason = 'it failed' where id = 2`)
		}
		r.exec(`update operator_requests set answered_at = null, status = null, header = null, body = null`)
		again := r.do(c)
		if again.status != first.status || r.lines() != lines+1 ||
			again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("%s: got %d %s and %d lines, want the answer of %d %s and no further line", c.path, again.status,
				again.body, r.lines()-lines-1, first.status, first.body)
		}
		if first.status == http.StatusNoContent {
			continue
		}
		if id := same(t, first, "id"); id != same(t, again, "id") || same(t, first, "secret") != same(t, again, "secret") {
			t.Errorf("%s: got %s, want what %s says", c.path, again.body, first.body)
		}
		if sent := fmt.Sprint(r.count(`select count(*) from resends`), r.count(
			`select count(*) from endpoints where cursor < (select max(position) from outbox)`)); strings.HasPrefix(c.path,
			"/admin/v1/endpoints/1/") && sent != "0 0" {
			t.Errorf("%s: events are sent again (%s)", c.path, sent)
		}
	}
	if got := r.total("drop-1"); got != 10 { // 9, and one more of bob's
		t.Errorf("the total is %d, want 10", got)
	}
}

// same is a member of an answer that must not differ.
func same(t *testing.T, a reply, name string) string {
	t.Helper()
	var members map[string]json.RawMessage
	must(t, json.Unmarshal(a.body, &members))
	return string(members[name])
}

// lines counts what the audit log says of eve.
func (r *adminRig) lines() int {
	r.t.Helper()
	return r.count(`select count(*) from audit_log where actor = 'token:eve' and action <> 'begin-reduce'`)
}
