package httpapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"sluice/httpapi/entry"
	"sluice/internal/testkit"
)

// TestARetryOutlivesItsEntryTicket: an order is answered for under its Idempotency-Key, whatever became of the key that
// its entry ticket was signed with; that takes nothing, and tells nobody else anything.
func TestARetryOutlivesItsEntryTicket(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	sale := r.create(needing("drop-1", -time.Hour, 0))
	ticket := r.entryTicket("drop-1", "ann")
	ask := func(user, body, key string) call {
		return ticket.with(order("drop-1", user, body)).with("Idempotency-Key", key)
	}
	first := r.expect(ask("ann", "", "key-1"), 202, "")
	for name, keys := range map[string][]entry.Key{"another key": {entryKey("k2", 2)}, "no key": nil} {
		must(t, r.ring.Replace(keys))
		if again := r.expect(ask("ann", "", "key-1"), 202, ""); !bytes.Equal(again.body, first.body) {
			t.Errorf("%s: got %s, want %s", name, again.body, first.body)
		}
	}
	must(t, r.ring.Replace([]entry.Key{entryKey("k2", 2)}))
	r.expect(ask("ann", `{"quantity":2}`, "key-1"), 422, "idempotency-key-reused")
	r.expect(ask("ann", "", "key-2"), 403, "entry-ticket-invalid")
	r.expect(ticket.with(order("drop-1", "ann", "")), 403, "entry-ticket-invalid")
	r.expect(ask("bob", "", "key-1"), 403, "entry-ticket-invalid")
	r.expect(ask("bob", `{"quantity":1000}`, "key-1"), 403, "entry-ticket-invalid")
	r.expect(order("drop-1", "bob", "").with("Idempotency-Key", "key-1"), 403, "entry-ticket-required")
	if left := r.units(sale); left != 9 {
		t.Errorf("stock: got %d, want 9", left)
	}
	refused := false                        // an answer that does not say whether there is an order: nobody has looked
	for n := 0; n < 1000 && !refused; n++ { // far more often than somebody repeats a request
		refused = r.do(ask("ann", "", "key-1")).status == http.StatusTooManyRequests
	}
	if !refused {
		t.Error("an order is looked for as often as somebody asks without a ticket")
	}
}

// TestOneBuyerAndTheHook: one buyer has one call of the shop's check under way, and so many in a while; others are not
// held up by that.
func TestOneBuyerAndTheHook(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // protects calls
	calls := 0
	release := make(chan struct{})
	shop := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		calls++
		n := calls
		mu.Unlock()
		if n == 1 {
			<-release
		}
	}))
	t.Cleanup(shop.Close)
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end)
	r := newRig(t, rigOptions{entry: entry.Options{Hook: entry.HookOptions{URL: shop.URL, Timeout: entry.MaxHookTimeout}}})
	r.create(needing("drop-1", -time.Hour, 0))
	asked := func() int { mu.Lock(); defer mu.Unlock(); return calls }
	var first sync.WaitGroup
	first.Go(func() { r.do(askEntry("drop-1", "ann", "")) })
	testkit.Eventually(t, entry.MaxHookTimeout, "the first call", func() bool { return asked() == 1 })
	r.expect(askEntry("drop-1", "ann", ""), 429, "too-many-requests")
	r.entryTicket("drop-1", "bob")
	end()
	first.Wait()
	refused := 0
	for range 30 {
		if r.do(askEntry("drop-1", "ann", "")).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if got := asked(); refused == 0 || got+refused != 32 {
		t.Errorf("the hook was asked %d times, and %d were refused", got, refused)
	}
}

// TestEarlyToTheMillisecond: who is early is told how long that is, more exactly than a header can.
func TestEarlyToTheMillisecond(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	r.create(needing("drop-1", 2*time.Minute, 0))
	ticket := r.entryTicket("drop-1", "ann")
	before := time.Now()
	got := r.expect(ticket.with(order("drop-1", "ann", "")), 403, "entry-ticket-early")
	wait := decode[struct {
		RetryAfterMs int64 `json:"retry_after_ms"`
	}](t, got).RetryAfterMs
	after := time.Duration(wait) * time.Millisecond
	early, late := time.Now().Add(after).Before(ticket.NotBefore.Add(-time.Millisecond)),
		before.Add(after).After(ticket.NotBefore.Add(2*time.Millisecond))
	if wait <= 0 || early || late {
		t.Errorf("to wait %d ms from %s on, for %s", wait, before, ticket.NotBefore)
	}
}
