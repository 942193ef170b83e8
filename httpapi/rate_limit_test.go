package httpapi_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/httpapi"
	"sluice/httpapi/limits"
	"sluice/internal/testkit"
)

// onLoopback are the test's own connections, as those of a proxy.
var onLoopback = limits.NewAddresses([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})

// perMinute lets so many through; no test lasts so long that there are more.
func perMinute(n int) limits.Rate { return limits.Rate{Requests: n, Per: time.Minute} }

func limited(c *contract, l httpapi.Limits) rigOptions {
	return rigOptions{contract: c, deps: func(d *httpapi.Deps) { d.Limits = l }}
}

// from is a call of a client behind the proxy.
func (c call) from(address string) call { return c.with("X-Forwarded-For", address) }

// giveLimits asks every route too often.
func giveLimits(t *testing.T, c *contract) {
	r := newRig(t, limited(c, httpapi.Limits{Client: perMinute(1), Addresses: onLoopback}))
	r.create(newSale("drop-1", 10))
	path := strings.NewReplacer("{sale}", "drop-1", "{order}", "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f",
		"{file}", "viewer.js", "{code}", "sold-out")
	one := 0
	for template, item := range c.doc.Paths.Map() {
		for method, op := range item.Operations() {
			one++
			ask := call{method: method, path: path.Replace(template)}.from(fmt.Sprintf("203.0.113.%d", one))
			first := r.do(ask)
			if op.Responses.Status(http.StatusTooManyRequests) == nil {
				r.expect(ask, first.status, first.code()) // a health check
				continue
			}
			refused := r.expect(ask, 429, "too-many-requests")
			if got := refused.header.Get("RateLimit-Policy"); got != `"client";q=1;w=60` {
				t.Errorf("%s %s: RateLimit-Policy %q", method, template, got)
			}
		}
	}
}

// One client's requests are counted apart from another's, by the address that the proxy saw: what a client itself
// claims to be changes nothing.
func TestAClientIsItsAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Client: perMinute(2), Addresses: onLoopback}))
	ask := func(from string) int { return r.do(get("/v1/sales", "").from(from)).status }
	for _, c := range []struct {
		from string
		want int
	}{
		{"203.0.113.1", 200},
		{"198.51.100.9, 203.0.113.1", 200}, // the first is a claim
		{"203.0.113.1", 429},
		{"8.8.8.8, 203.0.113.1", 429},
		{"203.0.113.2", 200},
		{"2001:db8:0:1::1", 200},
		{"2001:db8:0:1:ffff::2", 200},
		{"2001:db8:0:1::3", 429}, // of the same /64
		{"2001:db8:0:2::1", 200},
		{"nonsense", 200}, // the proxy itself
	} {
		if got := ask(c.from); got != c.want {
			t.Errorf("from %q: got %d, want %d", c.from, got, c.want)
		}
	}
}

// Without a trusted proxy nobody's X-Forwarded-For is believed, and a refusal makes its client wait.
func TestAClientThatClaimsToBeOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Client: perMinute(1)}))
	r.expect(get("/v1/sales", "").from("203.0.113.1"), 200, "")
	refused := r.expect(get("/v1/sales", "").from("203.0.113.2"), 429, "too-many-requests")
	if refused.took < time.Second {
		t.Errorf("answered after %s, want it held back for a second", refused.took)
	}
	if wait := refused.header.Get("Retry-After"); wait != "60" && wait != "61" {
		t.Errorf("Retry-After %q", wait)
	}
}

// A buyer's requests are counted wherever they come from, and nobody else's.
func TestABuyerWhoAsksTooOften(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Buyer: perMinute(2), Addresses: onLoopback}))
	r.create(newSale("drop-1", 10))
	r.expect(order("drop-1", "ann", "").from("203.0.113.1"), 202, "")
	r.expect(get("/v1/sales/drop-1/orders/mine", "ann").from("203.0.113.2"), 200, "")
	refused := r.expect(order("drop-1", "ann", "").from("203.0.113.3"), 429, "too-many-requests")
	if got := refused.header.Get("RateLimit-Policy"); got != `"buyer";q=2;w=60` {
		t.Errorf("RateLimit-Policy %q", got)
	}
	r.expect(order("drop-1", "bob", "").from("203.0.113.3"), 202, "")
	if got := testutil.ToFloat64(r.limitedBy("buyer")); got != 1 {
		t.Errorf("counted %v refusals of buyers, want 1", got)
	}
}

// A sale takes so many orders in a time, and the others are not touched.
func TestASaleThatIsAskedForTooOften(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Sale: perMinute(2)}))
	r.create(newSale("drop-1", 10))
	r.create(newSale("drop-2", 10))
	r.expect(order("drop-1", "ann", ""), 202, "")
	r.expect(order("drop-1", "bob", ""), 202, "")
	refused := r.expect(order("drop-1", "cleo", ""), 429, "too-many-requests")
	if got := refused.header.Get("RateLimit-Policy"); got != `"sale";q=2;w=60` {
		t.Errorf("RateLimit-Policy %q", got)
	}
	r.expect(order("drop-2", "cleo", ""), 202, "")
	r.expect(get("/v1/sales/drop-1", ""), 200, "")
}

// A payment provider sends as many webhooks as there are payments; one that can't sign them is refused after a few.
func TestOnlyWrongWebhooksCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Client: perMinute(3), Addresses: onLoopback}))
	event := `{"type":"invoice.paid","data":{}}`
	for n := range 5 {
		r.expect(delivery(fmt.Sprintf("right-%d", n), event).from("203.0.113.1"), 200, "")
	}
	for range 3 {
		r.expect(delivery("forged", event).with("webhook-signature", "v1,AAAA").from("203.0.113.2"), 401, "invalid-signature")
	}
	r.expect(delivery("forged", event).with("webhook-signature", "v1,AAAA").from("203.0.113.2"), 429, "too-many-requests")
	r.expect(delivery("right", event).from("203.0.113.1"), 200, "")
}

// A stranger who knows an order's id can't use up the streams of its buyer; a buyer has a bounded number of them over
// all orders.
func TestStreamsAreTheBuyersOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	var paths []string
	for n := range 3 {
		sale := newSale(fmt.Sprintf("drop-%d", n), 10)
		r.create(sale)
		paths = append(paths, r.expect(order(sale.ID, "ann", ""), 202, "").header.Get("Location"))
	}
	for range 20 { // more than an order may have
		r.expect(get(paths[0]+"/events", "eve"), 404, "unknown-order")
	}
	var last *follower
	for n := range httpapi.MaxWaits {
		last = r.follow(t, paths[n%len(paths)], "ann", "")
	}
	refused := r.expect(get(paths[0]+"/events", "ann"), 429, "too-many-requests")
	if got, want := refused.header.Get("RateLimit-Policy"), fmt.Sprintf(`"waits";q=%d`, httpapi.MaxWaits); got != want {
		t.Errorf("RateLimit-Policy %q, want %q", got, want)
	}
	waited := r.expect(order("drop-0", "ann", "").with("Prefer", "wait=1"), 409, "already-ordered")
	if waited.took > 10*time.Second {
		t.Errorf("waited %s", waited.took)
	}
	last.leave()
}

func (r *rig) limitedBy(limit string) prometheus.Counter {
	return httpapi.NewLimited(r.registry).WithLabelValues(limit)
}

// Health checks are never refused, and one client can't have so many answered at once that others wait.
func TestHealthChecksAreHeldBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, limited(nil, httpapi.Limits{Client: perMinute(1)}))
	var slowest atomic.Int64
	testkit.Eventually(t, time.Minute, "more than 50 in a second", func() bool {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				began := time.Now()
				if got, err := r.try(get("/healthz", "")); err != nil || got.status != http.StatusOK {
					t.Errorf("got %d, %v", got.status, err)
				}
				for took, most := int64(time.Since(began)), slowest.Load(); took > most; most = slowest.Load() {
					slowest.CompareAndSwap(most, took)
				}
			})
		}
		all.Wait()
		return testutil.ToFloat64(r.limitedBy("health")) > 0
	})
	if got := time.Duration(slowest.Load()); got < 500*time.Millisecond {
		t.Errorf("the slowest of those took %s", got)
	}
}
