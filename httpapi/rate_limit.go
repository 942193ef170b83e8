package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/limits"
)

// hold is how long the refusal of a client that has come too often is kept back: what Retry-After says at least, and up
// to as much again, so that a client's connections don't all come back in the same moment. One that does not heed
// Retry-After, and asks again at once on as many connections as it may have, costs next to nothing then.
const hold = time.Second

// maxWaits is how many streams of events, and orders with Prefer: wait, one buyer may have open at once: all devices of
// a household, with some tabs each.
const maxWaits = 32

// hookPolicy names the limits of calls of the shop's own check, which are for buyers at any api, whatever is set: one
// buyer under way at a time, and then as often as a person gets a captcha wrong.
const hookPolicy = "entry-hook"

var hookRate = limits.Rate{Requests: 10, Per: time.Minute}

// How often an order without a good entry ticket is looked for under its Idempotency-Key: by one buyer, and by all of
// them, which costs Redis less than a hundredth. Before an opening everybody who is early may ask, so these are counted
// by themselves.
var (
	replayRate    = limits.Rate{Requests: 5, Per: time.Second}
	allReplayRate = limits.Rate{Requests: 500, Per: time.Second}
)

// How often one client that is connected directly is told at once whether this api is well. The answers to more come
// later, and none is refused: a load balancer asks for all of its clients. healthHold is below the second that probes
// usually wait.
var healthRate = limits.Rate{Requests: 50, Per: time.Second}

const healthHold = 500 * time.Millisecond

// Limits bound what one client may do at this api. The zero Limits bound nothing, as behind a gateway that does.
type Limits struct {
	Client limits.Rate // of one client address, an IPv6 /64 being one
	Buyer  limits.Rate // of one buyer, from wherever
	Sale   limits.Rate // orders for one sale

	Addresses *limits.Addresses // nil: nobody's X-Forwarded-For is believed
}

// guard applies Limits.
type guard struct {
	addresses *limits.Addresses
	clients   *limits.Limiter[netip.Prefix]
	health    *limits.Limiter[netip.Prefix]
	buyers    *limits.Limiter[string]
	sales     *limits.Limiter[string]
	waits     *limits.Concurrent[string] // by buyer
	hooks     *limits.Concurrent[string] // by buyer; calls of the shop's own check
	hookRate  *limits.Limiter[string]    // by buyer
	replays   *limits.Limiter[string]    // by buyer
	allReplay *limits.Limiter[bool]      // of all buyers; true: those who are early
	refused   *prometheus.CounterVec
	now       func() time.Time
}

func newGuard(l Limits, reg prometheus.Registerer) *guard {
	if l.Addresses == nil {
		l.Addresses = limits.NewAddresses(nil)
	}
	return &guard{
		addresses: l.Addresses,
		clients:   limits.NewLimiter[netip.Prefix]("client", l.Client),
		health:    limits.NewLimiter[netip.Prefix]("health", healthRate),
		buyers:    limits.NewLimiter[string]("buyer", l.Buyer),
		sales:     limits.NewLimiter[string]("sale", l.Sale),
		waits:     limits.NewConcurrent[string]("waits", maxWaits),
		hooks:     limits.NewConcurrent[string](hookPolicy, 1),
		hookRate:  limits.NewLimiter[string](hookPolicy, hookRate),
		replays:   limits.NewLimiter[string]("repeats", replayRate),
		allReplay: limits.NewLimiter[bool]("repeats", allReplayRate),
		refused:   newLimited(reg),
		now:       time.Now, // not Deps.Now: what a page shows is no measure of how fast somebody asks
	}
}

// newLimited returns the counter of what was refused because of a limit.
func newLimited(reg prometheus.Registerer) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_http_limited_total",
		Help: "Requests and connections that were refused, by the limit: client, buyer, sale, connections, " +
			"client-connections, opened, webhooks, entry-hook or host; health: answers that were held back.",
	}, []string{"limit"})
	for _, limit := range []string{"client", "buyer", "sale", "connections"} { // from 0 on, so that the first one shows
		counter.WithLabelValues(limit)
	}
	if reg == nil {
		return counter
	}
	var earlier prometheus.AlreadyRegisteredError
	switch err := reg.Register(counter); {
	case errors.As(err, &earlier): // the listeners of the same process count there too
		return earlier.ExistingCollector.(*prometheus.CounterVec)
	case err != nil:
		panic(err)
	}
	return counter
}

// CountRefused returns a function that counts connections that were refused because of a limit.
func CountRefused(reg prometheus.Registerer) func(*limits.Refusal) {
	counter := newLimited(reg)
	return func(because *limits.Refusal) { counter.WithLabelValues(because.Policy).Inc() }
}

// client is who a request's address stands for; invalid where clients are not limited, or it is not known.
func (g *guard) client(r *http.Request) netip.Prefix {
	if g.clients == nil {
		return netip.Prefix{}
	}
	return g.addresses.Client(r)
}

// takeClient counts a request of a client, before anything else is done for it. Health checks count by themselves.
// Webhooks don't, see chargeWebhook.
func (g *guard) takeClient(c echo.Context) error {
	client := g.client(c.Request())
	switch {
	case !client.IsValid() || c.Path() == paymentWebhookRoute:
		return nil
	case isHealth(c.Path()):
		g.takeHealth(c.Request(), client)
		return nil
	default:
		return g.limited(c.Request(), g.clients.Take(client, g.now()))
	}
}

// takeHealth counts a health check of a client, and keeps it back where there were too many.
func (g *guard) takeHealth(r *http.Request, client netip.Prefix) {
	if g.addresses.IsProxy(limits.AddressOf(r.RemoteAddr)) {
		return // whose connections are those of all its clients
	}
	if refused := g.health.Take(client, g.now()); refused != nil {
		g.refused.WithLabelValues(refused.Policy).Inc()
		pause(r.Context(), healthHold)
	}
}

// peekWebhook refuses webhooks of a client that sent too many wrong ones.
func (g *guard) peekWebhook(r *http.Request) error {
	client := g.client(r)
	if !client.IsValid() {
		return nil
	}
	return g.limited(r, g.clients.Peek(client, g.now()))
}

// chargeWebhook counts a webhook whose signature is wrong. Those that are right are not limited: a provider sends all
// payments of a sale from a few addresses.
func (g *guard) chargeWebhook(r *http.Request) {
	if client := g.client(r); client.IsValid() {
		_ = g.clients.Take(client, g.now())
	}
}

// takeSale counts an order request for a sale. It names the sale of the catalogue, so that keys are bounded.
func (g *guard) takeSale(saleID string) error {
	if refused := g.sales.Take(saleID, g.now()); refused != nil {
		return g.problem(refused)
	}
	return nil
}

// enterWait counts a stream or a wait of a buyer, who ends it with leave.
func (g *guard) enterWait(userID string) (leave func(), err error) {
	if refused := g.waits.Enter(userID); refused != nil {
		p := g.problem(refused)
		p.Detail = fmt.Sprintf("you have %d streams and waiting requests open, and no more are allowed at once: close some first",
			maxWaits)
		return nil, p
	}
	return func() { g.waits.Leave(userID) }, nil
}

// enterHook counts a call of the shop's own check for a buyer, who ends it with done.
func (g *guard) enterHook(userID string) (done func(), err error) {
	if refused := g.hooks.Enter(userID); refused != nil {
		p := g.problem(refused)
		p.Detail = "your request before this one is being checked: wait for its answer"
		return nil, p
	}
	if refused := g.hookRate.Take(userID, g.now()); refused != nil {
		g.hooks.Leave(userID)
		return nil, g.problem(refused)
	}
	return func() { g.hooks.Leave(userID) }, nil
}

// takeReplay counts a look for an order whose entry ticket is not good.
func (g *guard) takeReplay(userID string, early bool) error {
	refused := g.replays.Take(userID, g.now())
	if refused == nil {
		refused = g.allReplay.Take(early, g.now())
	}
	if refused == nil {
		return nil
	}
	p := g.problem(refused)
	p.Detail = "the entry ticket is not good, and nobody has looked whether you have an order: too many ask at once; wait"
	return p
}

// limited is the answer to a client that came too often. One that is connected directly waits for it: it can't have
// more of them under way than connections. A proxy's connections are those of all its clients.
func (g *guard) limited(r *http.Request, refused *limits.Refusal) error {
	if refused == nil {
		return nil
	}
	p := g.problem(refused)
	if !g.addresses.IsProxy(limits.AddressOf(r.RemoteAddr)) {
		p.hold = holdFor()
	}
	return p
}

// holdFor draws how long a refusal is kept back.
func holdFor() time.Duration { return hold + rand.N(hold) }

func (g *guard) problem(refused *limits.Refusal) *problem {
	g.refused.WithLabelValues(refused.Policy).Inc()
	p := newProblem(codeTooManyRequests, "more than "+strconv.Itoa(refused.Rate.Requests)+" requests in "+
		refused.Rate.Per.String()+", which is the limit of one "+refused.Policy)
	p.limit = refused
	return p
}

// limitedBuyers counts the requests of each buyer.
type limitedBuyers struct {
	authenticator
	guard *guard
}

// Authenticate returns the buyer, or the problem that there were too many requests of this one.
func (l limitedBuyers) Authenticate(r *http.Request) (string, error) {
	userID, err := l.authenticator.Authenticate(r)
	if err != nil {
		return "", err
	}
	return userID, l.guard.limited(r, l.guard.buyers.Take(userID, l.guard.now()))
}

// limitHeaders say which limit was reached, in the form of draft-ietf-httpapi-ratelimit-headers-10, and when to come
// back.
func limitHeaders(h http.Header, refused *limits.Refusal) {
	seconds := strconv.Itoa(int(math.Ceil(refused.Wait.Seconds())))
	policy := fmt.Sprintf("%q;q=%d", refused.Policy, refused.Rate.Requests)
	if refused.Rate.Per > 0 { // else it is how many at once
		policy += fmt.Sprintf(";w=%d", int(refused.Rate.Per.Seconds()))
	}
	h["Ratelimit-Policy"] = []string{policy}
	h["Ratelimit"] = []string{fmt.Sprintf("%q;r=0;t=%s", refused.Policy, seconds)}
	h[headerRetryAfter] = []string{seconds}
}

// pause waits before an answer, unless the client leaves.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
