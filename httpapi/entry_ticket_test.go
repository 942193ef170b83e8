package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/httpapi"
	"sluice/httpapi/entry"
	"sluice/httpapi/limits"
	"sluice/internal/testkit"
	"sluice/pipeline"
)

// newEntry gives the rig entry tickets: with one key, unless the options have others.
func (r *rig) newEntry(o entry.Options) {
	r.t.Helper()
	var err error
	r.ring, err = entry.NewRing(entryKey("k1", 1))
	must(r.t, err)
	o.Ring, o.Log = r.ring, r.log()
	r.entry, err = entry.NewService(o)
	must(r.t, err)
}

func entryKey(id string, b byte) entry.Key {
	return entry.Key{ID: id, Secret: bytes.Repeat([]byte{b}, 32)}
}

type entryTicket struct {
	SaleID      string    `json:"sale_id"`
	EntryTicket string    `json:"entry_ticket"`
	NotBefore   time.Time `json:"not_before"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// askEntry asks for an entry ticket; a body of "" means no body at all.
func askEntry(sale, user, body string) call {
	c := call{method: http.MethodPost, path: "/v1/sales/" + sale + "/ticket", body: body}.with("X-User-Id", user)
	if body != "" {
		c = c.with("Content-Type", "application/json")
	}
	return c
}

func (r *rig) entryTicket(sale, user string) entryTicket {
	r.t.Helper()
	return decode[entryTicket](r.t, r.expect(askEntry(sale, user, ""), 200, ""))
}

// with is a call with an entry ticket.
func (t entryTicket) with(c call) call { return c.with("Entry-Ticket", t.EntryTicket) }

// needing is a sale that opens in a time, and needs entry tickets.
func needing(id string, opensIn, spread time.Duration) *pipeline.Sale {
	sale := newSale(id, 10)
	sale.OpensAt = time.Now().Add(opensIn).Truncate(time.Millisecond)
	sale.ClosesAt = sale.OpensAt.Add(5 * time.Hour)
	sale.EntryTicket, sale.EntrySpread = true, spread
	return sale
}

func giveEntry(t *testing.T, c *contract) {
	status := http.StatusNoContent
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(shop.Close)
	r := newRig(t, rigOptions{contract: c, entry: entry.Options{Hook: entry.HookOptions{URL: shop.URL}}})
	for _, sale := range []*pipeline.Sale{needing("open", -time.Hour, 0), needing("soon", time.Minute, 10*time.Second)} {
		sale.Waitlist = 5
		r.create(sale)
	}
	r.create(needing("later", 2*time.Hour, 0))
	r.create(newSale("free", 5))
	over := needing("over", -4*time.Hour, 0)
	over.ClosesAt = time.Now().Add(-time.Hour)
	r.create(over)

	ann, soon := r.entryTicket("open", "ann"), r.entryTicket("soon", "ann")
	r.expect(askEntry("open", "ann", `{"proof":"x"}`), 200, "")
	r.expect(askEntry("open", "ann", `{"prof":"x"}`), 400, "invalid-request")
	r.expect(askEntry("open", "", ""), 401, "unauthenticated")
	r.expect(askEntry("unknown", "ann", ""), 404, "unknown-sale")
	r.expect(askEntry("later", "ann", ""), 409, "entry-not-open")
	r.expect(askEntry("free", "ann", ""), 409, "no-entry-ticket")
	r.expect(askEntry("over", "ann", ""), 409, "sale-closed")
	r.expect(askEntry("open", "ann", strings.Repeat(" ", 5000)), 413, "too-large")
	r.expect(askEntry("open", "ann", "{}").with("Content-Type", "text/plain"), 415, "unsupported-media-type")
	r.expect(askEntry("open", breakingUser, ""), 500, "internal")
	status = http.StatusForbidden
	r.expect(askEntry("open", "ann", ""), 403, "entry-refused")
	status = http.StatusInternalServerError
	r.expect(askEntry("open", "ann", ""), 503, "entry-unavailable")
	for _, ask := range []func(sale, user, body string) call{order, join} {
		r.expect(ask("open", "ann", ""), 403, "entry-ticket-required")
		r.expect(ann.with(ask("open", "bob", "")), 403, "entry-ticket-invalid")
		r.expect(soon.with(ask("soon", "ann", "")), 403, "entry-ticket-early")
	}
	r.expect(ann.with(join("open", "ann", "")), 409, "not-sold-out")
	r.expect(ann.with(order("open", "ann", "")), 202, "")
	r.expect(get("/v1/sales", ""), 200, "")
	must(t, r.ring.Replace(nil))
	for _, ask := range []func(sale, user, body string) call{order, join, askEntry} {
		r.expect(ann.with(ask("open", "ann", "")), 503, "entry-tickets-off")
	}
}

// A ticket that is sent again does what it did: its buyer's orders are limited, and another buyer, or another sale, has
// nothing of it.
func TestReplayedAndForeignEntryTickets(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(needing("drop-1", -time.Hour, 0))
	r.create(needing("drop-2", -time.Hour, 0))
	ticket := r.entryTicket("drop-1", "ann")
	placed := r.expect(ticket.with(order("drop-1", "ann", "")), 202, "")
	for range 3 {
		r.expect(ticket.with(order("drop-1", "ann", "")), 409, "already-ordered")
	}
	other := r.entryTicket("drop-1", "ann") // asking again gives no second order either
	r.expect(other.with(order("drop-1", "ann", "")), 409, "already-ordered")

	r.expect(ticket.with(order("drop-1", "bob", "")), 403, "entry-ticket-invalid")
	r.expect(ticket.with(order("drop-2", "ann", "")), 403, "entry-ticket-invalid")
	r.expect(ticket.with(join("drop-1", "bob", "")), 403, "entry-ticket-invalid")
	two := ticket.with(order("drop-1", "ann", ""))
	two.header.Add("Entry-Ticket", ticket.EntryTicket)
	r.expect(two, 403, "entry-ticket-invalid")
	if left := r.units(sale); left != 9 {
		t.Errorf("stock: got %d, want 9", left)
	}
	// What needs no ticket: looking at one's order, and cancelling it.
	r.expect(get(placed.header.Get("Location"), "ann"), 200, "")
	r.persist(sale)
	r.expect(cancel(placed.header.Get("Location"), "ann"), 200, "")
}

// An early ticket says when to come back. When the opening is moved, the ticket stays good.
func TestAnEarlyEntryTicket(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(needing("drop-1", 30*time.Minute, 10*time.Minute))
	ticket := r.entryTicket("drop-1", "ann")
	if ticket.NotBefore.Before(sale.OpensAt) || !ticket.NotBefore.Before(sale.OpensAt.Add(10*time.Minute)) {
		t.Errorf("good from %s on, and the sale opens at %s", ticket.NotBefore, sale.OpensAt)
	}
	asked := time.Now()
	early := r.expect(ticket.with(order("drop-1", "ann", "")), 403, "entry-ticket-early")
	var body struct {
		NotBefore time.Time `json:"not_before"`
	}
	must(t, json.Unmarshal(early.body, &body))
	if !body.NotBefore.Equal(ticket.NotBefore) {
		t.Errorf("not_before: got %s, want %s", body.NotBefore, ticket.NotBefore)
	}
	wait, err := strconv.Atoi(early.header.Get("Retry-After"))
	must(t, err)
	if back := asked.Add(time.Duration(wait) * time.Second); back.Before(ticket.NotBefore.Add(-5*time.Second)) ||
		back.After(ticket.NotBefore.Add(5*time.Second)) {
		t.Errorf("Retry-After leads to %s, want %s", back, ticket.NotBefore)
	}
	earlier, atOnce := time.Now().Add(-time.Second), time.Duration(0)
	_, err = r.publisher.Change(t.Context(), "drop-1", "test", pipeline.SaleChange{OpensAt: &earlier, EntrySpread: &atOnce})
	must(t, err)
	r.reload()
	r.expect(ticket.with(order("drop-1", "ann", "")), 202, "")

	later := needing("later", 3*time.Hour, 0)
	r.create(later)
	soon := r.expect(askEntry("later", "ann", ""), 409, "entry-not-open")
	if wait, err := strconv.Atoi(soon.header.Get("Retry-After")); err != nil || wait < 7100 || wait > 7201 {
		t.Errorf("Retry-After: got %q, want two hours", soon.header.Get("Retry-After"))
	}
}

// A script that asks and orders in the moment of the opening, again and again, gains nothing: those who were there have
// ordered before its turn comes, and nothing is left.
func TestAScriptAtTheOpeningGainsNothing(t *testing.T) {
	t.Parallel()
	const people, spread = 10, 3 * time.Second
	r := newRig(t, rigOptions{})
	sale := r.create(needing("drop-1", 4*time.Second, spread))
	var there sync.WaitGroup
	for n := range people {
		user := fmt.Sprintf("person-%d", n)
		ticket := r.entryTicket("drop-1", user)
		there.Go(func() { // the shop's page orders when the turn has come
			for {
				time.Sleep(time.Until(ticket.NotBefore))
				switch got, err := r.try(ticket.with(order("drop-1", user, ""))); {
				case err != nil:
					t.Error(err)
					return
				case got.status == 202:
					return
				case got.code() != "entry-ticket-early" && got.code() != "sale-not-open": // two clocks, by some microseconds
					t.Errorf("%s: got %s", user, got.body)
					return
				}
			}
		})
	}
	time.Sleep(time.Until(sale.OpensAt))
	script, ticket := "", entryTicket{}
	margin := 2 * time.Second // for a busy machine
	for n := 0; ticket.NotBefore.Before(sale.OpensAt.Add(spread + margin)); n++ {
		script = fmt.Sprintf("script-%d", n)
		ticket = r.entryTicket("drop-1", script)
	}
	r.expect(order("drop-1", script, ""), 403, "entry-ticket-required")
	codes := map[string]int{}
	testkit.Eventually(t, time.Minute, "the script to get a last answer", func() bool {
		again := r.entryTicket("drop-1", script)
		if !again.NotBefore.Equal(ticket.NotBefore) {
			t.Errorf("asking again changed the turn from %s to %s", ticket.NotBefore, again.NotBefore)
		}
		got := r.do(again.with(order("drop-1", script, "")))
		codes[got.code()]++
		return got.code() != "entry-ticket-early"
	})
	if codes["sold-out"] != 1 || codes["entry-ticket-early"] == 0 || len(codes) != 2 {
		t.Errorf("the script got %v, want that it is early, then sold out", codes)
	}
	there.Wait()
}

// Keys are replaced in the middle of a sale, in three steps: no buyer is refused. Only what the old key signed ends,
// when it is taken out.
func TestEntryKeysRotateInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := needing("drop-1", -time.Hour, 0)
	sale.Total = 10_000
	r.create(sale)
	former, newer := entryKey("k1", 1), entryKey("k2", 2)
	early := r.entryTicket("drop-1", "ann")
	stop := make(chan struct{})
	var buyers sync.WaitGroup
	var mu sync.Mutex // protects placed
	placed := 0
	count := func() int { mu.Lock(); defer mu.Unlock(); return placed }
	for n := range 4 {
		buyers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				user := fmt.Sprintf("buyer-%d-%d", n, i)
				given, err := r.try(askEntry("drop-1", user, ""))
				if err != nil || given.status != 200 {
					t.Errorf("%s: got %s, %v", user, given.body, err)
					return
				}
				got, err := r.try(decode[entryTicket](t, given).with(order("drop-1", user, "")))
				if err != nil || got.status != 202 {
					t.Errorf("%s: got %s, %v", user, got.body, err)
					return
				}
				mu.Lock()
				placed++
				mu.Unlock()
			}
		})
	}
	for _, keys := range [][]entry.Key{{former, newer}, {newer, former}} {
		must(t, r.ring.Replace(keys))
		before := count()
		testkit.Eventually(t, time.Minute, "orders under these keys", func() bool { return count() > before+20 || t.Failed() })
	}
	close(stop)
	buyers.Wait()
	late := r.entryTicket("drop-1", "bob")
	must(t, r.ring.Replace([]entry.Key{newer}))
	r.expect(early.with(order("drop-1", "ann", "")), 403, "entry-ticket-invalid")
	r.expect(late.with(order("drop-1", "bob", "")), 202, "")
	r.expect(r.entryTicket("drop-1", "ann").with(order("drop-1", "ann", "")), 202, "")
}

// Orders that lack a ticket don't use up what a sale may take.
func TestOrdersWithoutEntryTicketDontCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Sale: perMinute(1)}))
	r.create(needing("drop-1", -time.Hour, 0))
	for range 3 {
		r.expect(order("drop-1", "bob", ""), 403, "entry-ticket-required")
	}
	ticket := r.entryTicket("drop-1", "ann")
	r.expect(ticket.with(order("drop-1", "ann", "")), 202, "")
	r.expect(ticket.with(order("drop-1", "ann", "")), 429, "too-many-requests")
}

// The shop's check gets who asks, and with which proof; its reason reaches the buyer. Limits come before it.
func TestTheShopsCheck(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // protects asks
	var asks []map[string]string
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var ask map[string]string
		if err := json.NewDecoder(req.Body).Decode(&ask); err != nil {
			t.Error(err)
		}
		mu.Lock()
		asks = append(asks, ask)
		mu.Unlock()
		if ask["proof"] != "solved" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"solve the captcha"}`)
		}
	}))
	t.Cleanup(shop.Close)
	r := newRig(t, rigOptions{
		entry: entry.Options{Hook: entry.HookOptions{URL: shop.URL}},
		deps: func(d *httpapi.Deps) {
			d.Limits.Buyer = limits.Rate{Requests: 3, Per: time.Hour}
			d.Limits.Addresses = limits.NewAddresses([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		},
	})
	r.create(needing("drop-1", -time.Hour, 0))
	refused := r.expect(askEntry("drop-1", "ann", ""), 403, "entry-refused").problem()
	if refused.Detail != "solve the captcha" {
		t.Errorf("detail: got %q", refused.Detail)
	}
	r.expect(askEntry("drop-1", "ann", `{"proof":"solved"}`).with("X-Forwarded-For", "203.0.113.7"), 200, "")
	r.expect(askEntry("drop-1", "ann", `{"proof":"`+strings.Repeat("x", entry.MaxProofBytes+1)+`"}`), 400, "invalid-request")
	r.expect(askEntry("drop-1", "ann", `{"proof":"solved"}`), 429, "too-many-requests")
	mu.Lock()
	defer mu.Unlock()
	if len(asks) != 2 || asks[0]["client_address"] != "127.0.0.1" || asks[0]["proof"] != "" ||
		asks[1]["client_address"] != "203.0.113.7" || asks[1]["user_id"] != "ann" || asks[1]["sale_id"] != "drop-1" {
		t.Errorf("the shop was asked %v", asks)
	}
}

// Buyers see whether a sale needs a ticket, and a page of another origin may send one.
func TestASaleSaysThatItNeedsEntryTickets(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.CORSOrigins = []string{"https://shop.example.com"} }})
	r.create(needing("drop-1", -time.Hour, 10*time.Second))
	r.create(newSale("free", 5))
	for id, want := range map[string]string{
		"drop-1": `"entry_ticket":true,"entry_spread_seconds":10`, "free": `"entry_ticket":false}`,
	} {
		if got := r.expect(get("/v1/sales/"+id, ""), 200, ""); !strings.Contains(string(got.body), want) {
			t.Errorf("got %s, want %s", got.body, want)
		}
	}
	asked := call{method: http.MethodOptions, path: "/v1/sales/drop-1/orders"}.with("Origin", "https://shop.example.com").
		with("Access-Control-Request-Method", "POST").with("Access-Control-Request-Headers", "entry-ticket")
	if allowed := r.do(asked).header.Get("Access-Control-Allow-Headers"); !strings.Contains(allowed, "Entry-Ticket") {
		t.Errorf("a page may send %q", allowed)
	}
}

// Operators say what a sale needs, if this api can give it.
func TestOperatorsRequireEntryTickets(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t, nil, adminToken)
	type sale struct {
		EntryTicket bool  `json:"entry_ticket"`
		Spread      int64 `json:"entry_spread_seconds"`
	}
	created := decode[sale](t, r.expect(post("sales", `{"id":"drop-1","total":5,"entry_ticket":true}`), 201, ""))
	if want := (sale{true, 10}); created != want {
		t.Errorf("created: got %+v, want %+v", created, want)
	}
	edit := func(body string) call { return ask(http.MethodPatch, "sales/drop-1", body) }
	edited := decode[sale](t, r.expect(edit(`{"entry_ticket":false,"entry_spread_seconds":600}`), 200, ""))
	if want := (sale{false, 600}); edited != want {
		t.Errorf("edited: got %+v, want %+v", edited, want)
	}
	if stored := r.stored("drop-1"); stored.EntryTicket || stored.EntrySpread != 10*time.Minute {
		t.Errorf("stored: %t, %s", stored.EntryTicket, stored.EntrySpread)
	}
	logged := string(r.expect(ask(http.MethodGet, "log?action=edit", ""), 200, "").body)
	for _, want := range []string{`"entry_ticket":true`, `"entry_spread_ms":10000`, `"entry_spread_ms":600000`} {
		if !strings.Contains(strings.ReplaceAll(logged, " ", ""), want) {
			t.Errorf("the audit log lacks %s: %s", want, logged)
		}
	}
	for _, wrong := range []string{`{"entry_spread_seconds":601}`, `{"entry_spread_seconds":-1}`, `{"entry_ticket":"yes"}`} {
		r.expect(edit(wrong), 400, "invalid-request")
	}
	r.expect(post("sales", `{"id":"drop-2","total":5,"entry_spread_seconds":9000000000000}`), 400, "invalid-request")

	must(t, r.ring.Replace(nil))
	for _, c := range []call{edit(`{"entry_ticket":true}`), post("sales", `{"id":"drop-3","total":5,"entry_ticket":true}`)} {
		if got := r.expect(c, 400, "invalid-request").problem(); !strings.Contains(got.Detail, "ENTRY_TICKET_KEYS") {
			t.Errorf("without keys: %s", got.Detail)
		}
	}
	r.expect(edit(`{"entry_spread_seconds":5}`), 200, "")
}
