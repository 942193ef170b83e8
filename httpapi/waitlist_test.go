package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"sluice/pipeline"
)

type waitlistEntry struct {
	SaleID   string `json:"sale_id"`
	OrderID  string `json:"order_id"`
	Status   string `json:"status"`
	Position int64  `json:"position"`
	Exact    bool   `json:"position_exact"`
	Quantity int    `json:"quantity"`
	JoinedAt string `json:"joined_at"`
}

func join(sale, user, body string) call {
	return call{method: http.MethodPost, path: "/v1/sales/" + sale + "/waitlist", body: body}.
		with("X-User-Id", user).with("Content-Type", "application/json")
}

func shownEntry(sale, user string) call { return get("/v1/sales/"+sale+"/waitlist", user) }

func leave(sale, user string) call {
	return call{method: http.MethodDelete, path: "/v1/sales/" + sale + "/waitlist"}.with("X-User-Id", user)
}

func waitlistCalls(sale, user string) []call {
	return []call{join(sale, user, ""), shownEntry(sale, user), leave(sale, user)}
}

// waitlisted is a sale with a waitlist of so many entries.
func waitlisted(id string, stock, entries int64) *pipeline.Sale {
	sale := newSale(id, stock)
	sale.Waitlist = entries
	return sale
}

func giveWaitlist(t *testing.T, c *contract) {
	r := newRig(t, rigOptions{contract: c})
	sale := r.create(waitlisted("drop-1", 2, 2))
	r.create(newSale("plain", 1))
	later := waitlisted("later", 1, 2)
	later.OpensAt, later.ClosesAt = later.OpensAt.Add(2*3600e9), later.ClosesAt.Add(2*3600e9)
	r.create(later)
	over := waitlisted("over", 1, 2)
	over.OpensAt, over.ClosesAt = over.OpensAt.Add(-2*3600e9), over.ClosesAt.Add(-2*3600e9)
	r.create(over)
	r.create(waitlisted("paused", 1, 2))
	r.setState("paused", "paused")
	r.defineOnly(waitlisted("not-loaded", 1, 2))

	r.expect(join("drop-1", "cy", ""), 409, "not-sold-out")
	path := r.expect(order("drop-1", "ann", `{"quantity":2}`), 202, "").header.Get("Location")
	if got := r.expect(order("drop-1", "bob", ""), 409, "sold-out"); !strings.Contains(string(got.body),
		`"waitlist":true`) {
		t.Errorf("sold out: got %s", got.body)
	}
	r.expect(order("plain", "ann", ""), 202, "")
	if got := r.expect(order("plain", "bob", ""), 409, "sold-out"); strings.Contains(string(got.body), "waitlist") {
		t.Errorf("sold out: got %s", got.body)
	}
	r.expect(join("plain", "bob", ""), 409, "no-waitlist")
	r.expect(join("later", "bob", ""), 409, "sale-not-open")
	r.expect(join("over", "bob", ""), 409, "sale-closed")
	r.expect(join("paused", "bob", ""), 409, "sale-paused")
	r.expect(join("not-loaded", "bob", ""), 503, "sale-not-loaded")
	for _, colour := range []string{"red", "blue"} {
		one := waitlisted(colour, 1, 2)
		one.LimitGroup, one.GroupLimit = "lamps", 1
		r.create(one)
	}
	r.expect(order("red", "ann", ""), 202, "")
	r.expect(order("blue", "bob", ""), 202, "")
	r.expect(join("red", "bob", ""), 409, "over-group-limit")
	if got := r.expect(join("drop-1", "ann", ""), 409, "already-ordered"); got.header.Get("Location") != path {
		t.Errorf("already ordered: got %q, want %q", got.header.Get("Location"), path)
	}
	r.expect(join("drop-1", "bob", `{"quantity":4}`), 400, "invalid-request")
	r.expect(join("drop-1", "bob", strings.Repeat(" ", 70_000)), 413, "too-large")
	r.expect(join("drop-1", "bob", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	for _, ask := range []func(sale, user string) call{
		func(s, u string) call { return join(s, u, "") },
		shownEntry, leave,
	} {
		r.expect(ask("drop-1", ""), 401, "unauthenticated")
		r.expect(ask("drop-1", "ann{}"), 400, "invalid-request")
		r.expect(ask("drop-2", "ann"), 404, "unknown-sale")
		r.expect(ask("drop-1", breakingUser), 500, "internal")
	}
	r.expect(shownEntry("drop-1", "bob"), 404, "not-waiting")
	r.expect(leave("drop-1", "bob"), 404, "not-waiting")

	keyed := join("drop-1", "bob", "").with("Idempotency-Key", "k")
	first := r.expect(keyed, 202, "")
	again := r.expect(keyed, 202, "")
	if string(first.body) != string(again.body) || first.header.Get("Location") != "/v1/sales/drop-1/waitlist" {
		t.Errorf("bob joined: %s, again: %s", first.body, again.body)
	}
	r.expect(join("drop-1", "bob", `{"quantity":2}`).with("Idempotency-Key", "k"), 422, "idempotency-key-reused")
	r.expect(join("drop-1", "bob", `{"quantity":2}`), 409, "already-waiting")
	if got := decode[waitlistEntry](t, r.expect(join("drop-1", "cy", ""), 202, "")); got.Position != 2 ||
		got.Status != "waiting" {
		t.Errorf("cy: got %+v", got)
	}
	r.expect(join("drop-1", "dan", ""), 409, "waitlist-full")
	r.expect(leave("drop-1", "cy"), 204, "")
	r.expect(leave("drop-1", "cy"), 404, "not-waiting")
	r.expect(shownEntry("drop-1", "cy"), 404, "not-waiting")
	bob := decode[waitlistEntry](t, r.expect(shownEntry("drop-1", "bob"), 200, ""))
	if bob != decode[waitlistEntry](t, first) || bob.Position != 1 || !bob.Exact {
		t.Errorf("bob's place: got %+v", bob)
	}

	r.persist(sale)
	r.expect(cancel(path, "ann"), 200, "")
	r.release()
	ordered := r.expect(shownEntry("drop-1", "bob"), 200, "")
	if got := decode[waitlistEntry](t, ordered); got.Status != "ordered" || got.OrderID != bob.OrderID ||
		got.Position != 0 {
		t.Errorf("bob's turn: got %+v", got)
	}
	if got := r.expect(get(ordered.header.Get("Location"), "bob"), 200, ""); decode[orderView](t,
		got).OrderID != bob.OrderID {
		t.Errorf("bob's order: got %s", got.body)
	}
	if got := r.expect(leave("drop-1", "bob"), 409,
		"already-ordered"); got.header.Get("Location") != ordered.header.Get("Location") {
		t.Errorf("bob leaves too late: got %v", got.header)
	}
	// The same Idempotency-Key names the order that came of it.
	r.expect(order("drop-1", "bob", "").with("Idempotency-Key", "k"), 202, "")

	// An entry that is missing in Redis: only where Redis is verified is it certain to have ended.
	r.exec(`insert into waitlist (sale_id, order_id, user_id, number, quantity, partition, ticket, joined_at)
		select 'not-loaded', gen_random_uuid(), 'bob', 1, 1, $1, 1, now()`, int16(pipeline.PlaceSale("not-loaded", 4)[0]))
	r.expect(leave("not-loaded", "bob"), 503, "sale-not-loaded")
	r.expect(shownEntry("not-loaded", "bob"), 404, "not-waiting")
}
