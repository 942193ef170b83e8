package auth_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/auth"
	"sluice/httpapi/limits"
	"sluice/pipeline"
	"sluice/pipeline/operator"
)

const rightToken = "0123456789abcdef0123456789abcdef"

// nowhere is a store that nobody asks: the only token is a setting.
type nowhere struct{}

func (nowhere) Find(context.Context, string) (operator.Token, time.Time, error) {
	return operator.Token{}, time.Time{}, pipeline.Errorf(pipeline.KindNotFound, "there are none")
}

// guessing is the admin side's door, and a clock that can be set.
type guessing struct {
	*testing.T
	*auth.Operators
	registry  *prometheus.Registry
	forwarded string     // what a client, or its proxy, says of its address
	mu        sync.Mutex // protects now
	now       time.Time
}

func newGuessing(t *testing.T) *guessing { return newGuessingAt(t, nowhere{}, nil) }

// newGuessingAt is one with tokens in a store, behind proxies.
func newGuessingAt(t *testing.T, store operator.Finder, proxies []netip.Prefix) *guessing {
	t.Helper()
	g := &guessing{T: t, registry: prometheus.NewRegistry(), now: time.Now()}
	g.Operators = auth.NewOperators(operator.NewKeyring(store, rightToken), limits.NewAddresses(proxies).Client,
		g.registry)
	g.SetClock(func() time.Time {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.now
	})
	return g
}

func (g *guessing) pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

// from is what is made of a token that comes from an address: 200, 401 or 429.
func (g *guessing) from(addr, token string) int {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), http.MethodGet, "/", http.NoBody)
	must(g, err)
	r.RemoteAddr = addr
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Forwarded-For", cmp.Or(g.forwarded, "203.0.113."+fmt.Sprint(len(token))))
	who, err := g.Identify(r)
	var refused *auth.Refused
	var tooMany *auth.TooManyAttempts
	switch {
	case err == nil && (who.Name == "bootstrap" || who.Name == "ann"):
		return http.StatusOK
	case errors.As(err, &refused):
		return http.StatusUnauthorized
	case errors.As(err, &tooMany) && tooMany.Seconds() >= 1:
		return http.StatusTooManyRequests
	}
	g.Errorf("got %v, %v", who, err)
	return 0
}

func (g *guessing) want(addr, token string, want int) {
	g.Helper()
	if got := g.from(addr, token); got != want {
		g.Errorf("%s: got %d, want %d", addr, got, want)
	}
}

const guesser, ann = "198.51.100.7:1", "192.0.2.1:1"

// TestGuessingIsSlow: after ten wrong tokens an address has one try every six seconds, and others are not affected.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	g := newGuessing(t)
	for range 10 {
		g.want(guesser, "wrong", 401)
	}
	for range 1000 {
		g.want(guesser, "wrong", 429)
	}
	g.want(guesser, rightToken, 429) // or else the answers would tell which is right
	g.want(ann, rightToken, 200)
	g.pass(6*time.Second + time.Millisecond)
	g.want(guesser, "wrong", 401)
	g.want(guesser, "wrong", 429)
	tried := 0
	for range 3600 { // an hour, with a try every second
		g.pass(time.Second)
		if g.from(guesser, "wrong") == 401 {
			tried++
		}
	}
	if tried < 500 || tried > 610 {
		t.Errorf("%d guesses were looked at in an hour, want about 600", tried)
	}
	g.pass(time.Hour)
	g.want(guesser, rightToken, 200)
	if value(t, g.registry, "sluice_operator_tokens_total", "too-many") < 3000 ||
		value(t, g.registry, "sluice_operator_tokens_total", "unknown") < 500 {
		t.Error("the metric does not count them")
	}
}

// TestGuessingFromEverywhere: many addresses have a limit together, which does not lock out an address that sent a
// right token lately; and they fill no memory.
func TestGuessingFromEverywhere(t *testing.T) {
	t.Parallel()
	g := newGuessing(t)
	g.want(ann, rightToken, 200)
	looked := 0
	for n := range 3 * auth.MostClients {
		if g.from(fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&255, n&255), "wrong") == 401 {
			looked++
		}
	}
	g.want(ann, rightToken, 200)
	if looked != 100 {
		t.Errorf("%d guesses were looked at, want 100", looked)
	}
	g.want("203.0.113.1:1", rightToken, 429)
	if kept := g.KeptClients(); kept > auth.MostClients {
		t.Errorf("%d clients are remembered, want %d at most", kept, auth.MostClients)
	}
	g.pass(time.Minute)
	g.want("203.0.113.2:1", rightToken, 200)
}

// TestGuessingAtOnce: requests that arrive together are counted, too.
func TestGuessingAtOnce(t *testing.T) {
	t.Parallel()
	g := newGuessing(t)
	var each sync.WaitGroup
	for range 100 {
		each.Go(func() { g.from(guesser, "wrong") })
	}
	each.Wait()
	g.want(guesser, "wrong", 429)
}

// TestAnAddressInIPv6IsANetwork: a customer of a provider has 2^64 addresses.
func TestAnAddressInIPv6IsANetwork(t *testing.T) {
	t.Parallel()
	g := newGuessing(t)
	for n := range 10 {
		g.want(fmt.Sprintf("[2001:db8::%x]:1", n), "wrong", 401)
	}
	g.want("[2001:db8::ffff]:1", "wrong", 429)
	g.want("[2001:db8:0:1::1]:1", "wrong", 401)
	for range 10 {
		g.want("[::ffff:198.51.100.8]:1", "wrong", 401)
	}
	g.want("198.51.100.8:2", "wrong", 429)
}

// one is a store with a single token.
type one struct{ token operator.Token }

func (s one) Find(context.Context, string) (operator.Token, time.Time, error) {
	return s.token, time.Now(), nil
}

// TestNobodyKeepsAnOperatorOut: a token that was right before is looked at wherever it comes from, whoever guesses.
func TestNobodyKeepsAnOperatorOut(t *testing.T) {
	t.Parallel()
	token, text, err := operator.New("ann", operator.Read, time.Now().Add(24*time.Hour), "cli:test")
	must(t, err)
	g := newGuessingAt(t, one{token}, nil)
	g.want(ann, text, 200)
	for n := range 200 {
		g.from(fmt.Sprintf("10.0.0.%d:1", n), "wrong")
	}
	g.want("203.0.113.1:1", text, 200)
	g.want("203.0.113.2:1", text[:len(text)-1]+"2", 429)
	g.want("203.0.113.3:1", rightToken, 429)
	g.pass(time.Hour)
	for range 10 {
		g.want(guesser, "wrong", 401)
	}
	g.want(guesser, rightToken, 429)
	g.want(guesser, text, 200) // from the same office, say
}

// TestClientsBehindAProxy: what a trusted proxy says is the client, and nothing that anybody else says.
func TestClientsBehindAProxy(t *testing.T) {
	t.Parallel()
	g := newGuessingAt(t, nowhere{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	const proxy = "10.0.0.1:1"
	g.forwarded = "198.51.100.7"
	for range 10 {
		g.want(proxy, "wrong", 401)
	}
	g.want(proxy, rightToken, 429)
	g.forwarded = "1.2.3.4, 198.51.100.7" // a claim of the client's own
	g.want(proxy, rightToken, 429)
	g.forwarded = "192.0.2.1"
	g.want(proxy, rightToken, 200)
	g.want("198.51.100.7:1", rightToken, 429) // not through the proxy, but the same client
}
