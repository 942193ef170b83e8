package auth_test

import (
	"crypto"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/auth"
	"sluice/internal/testkit"
)

const (
	patience = time.Minute // for what takes milliseconds: exceeding it is a failure on a busy machine too
	never    = time.Hour   // longer than any test
)

// by is a request with a token that a key signed.
func by(t testing.TB, id string, key crypto.PrivateKey) *http.Request {
	t.Helper()
	return request(t, "Bearer "+sign(t, header{"alg": "RS256", "kid": id}, goodClaims(), jwa.RS256(), key))
}

// TestRotation: a key that the issuer adds is found by the first token that names it, and tokens of one that it takes
// away are refused from the next fetch on, also those that were verified before.
func TestRotation(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, map[string]crypto.PublicKey{"old": rsaKey().Public()})
	o := options(i.URL)
	o.JWKS.Refresh, o.JWKS.Spacing = never, time.Millisecond
	tokens := newTokens(t, o)
	old, added := by(t, "old", rsaKey()), by(t, "new", otherRSA())
	if got := outcome(t, tokens, old); got != "ann" {
		t.Fatalf("got %q", got)
	}
	i.publish(t, map[string]crypto.PublicKey{"old": rsaKey().Public(), "new": otherRSA().Public()})
	testkit.Eventually(t, patience, "the new key", func() bool { return outcome(t, tokens, added) == "ann" })
	if got := outcome(t, tokens, old); got != "ann" {
		t.Errorf("the old key: got %q, while both are published", got)
	}
	i.publish(t, map[string]crypto.PublicKey{"new": otherRSA().Public()})
	unknown := by(t, "unknown", otherRSA())
	testkit.Eventually(t, patience, "the old key to be gone", func() bool {
		outcome(t, tokens, unknown) // has the keys fetched
		return outcome(t, tokens, old) == "401 unknown-key"
	})
	if got := outcome(t, tokens, added); got != "ann" {
		t.Errorf("the new key: got %q", got)
	}
}

// TestRotationWithoutNames: a token need not name its key (RFC 7515, section 4.1.4). One that no known key has signed
// is looked at again with the newest keys.
func TestRotationWithoutNames(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, map[string]crypto.PublicKey{"old": rsaKey().Public()})
	o := options(i.URL)
	o.JWKS.Refresh, o.JWKS.Spacing = never, time.Millisecond
	tokens := newTokens(t, o)
	nameless := request(t, "Bearer "+sign(t, header{"alg": "RS256"}, goodClaims(), jwa.RS256(), otherRSA()))
	if got := outcome(t, tokens, nameless); got != "401 signature" {
		t.Errorf("by a key that is not published: got %q", got)
	}
	i.publish(t, map[string]crypto.PublicKey{"new": otherRSA().Public()})
	testkit.Eventually(t, patience, "the new key", func() bool { return outcome(t, tokens, nameless) == "ann" })
}

// TestKeysAreFetchedRegularly: without any request, too.
func TestKeysAreFetchedRegularly(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, published())
	o := options(i.URL)
	o.JWKS.Refresh, o.JWKS.Spacing = time.Millisecond, time.Millisecond
	newTokens(t, o)
	testkit.Eventually(t, patience, "the third fetch", func() bool { return i.fetches.Load() >= 3 })
}

// TestUnknownKeysCauseNoFlood: however many unknown keys are named, the issuer is asked once per interval.
func TestUnknownKeysCauseNoFlood(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, published())
	o := options(i.URL)
	o.JWKS.Refresh, o.JWKS.Spacing = never, never
	tokens := newTokens(t, o)
	if got := outcome(t, tokens, by(t, "rsa", rsaKey())); got != "ann" {
		t.Fatalf("got %q", got)
	}
	var each sync.WaitGroup
	for worker := range 8 {
		each.Go(func() {
			for n := range 50 {
				if got := outcome(t, tokens, by(t, fmt.Sprint(worker, n), rsaKey())); got != "401 unknown-key" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	each.Wait()
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("400 tokens of unknown keys caused %d fetches, want the one at start", n)
	}
}

// TestJWKSDown: the keys that are known go on to be used until they are too old; what is unknown meanwhile is answered
// 503, because a new key may have been published. Readiness and metrics tell.
func TestJWKSDown(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64 // how far it is ahead
	registry := prometheus.NewRegistry()
	i := newIssuer(t, published())
	o := options(i.URL)
	o.Metrics = auth.NewMetrics(registry)
	o.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
	o.JWKS.Refresh, o.JWKS.Spacing = time.Millisecond, time.Millisecond
	tokens := newTokens(t, o)
	known := request(t, "Bearer "+good(t, goodClaims().with("exp", time.Now().Add(100*time.Hour).Unix())))
	if got := outcome(t, tokens, known); got != "ann" {
		t.Fatalf("got %q", got)
	}
	jwks := tokens.JWKS()
	if jwks.Usable(t.Context()) != nil || jwks.Fetched(t.Context()) != nil {
		t.Error("not ready although all is well")
	}
	i.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	testkit.Eventually(t, patience, "a fetch to fail", func() bool { return jwks.Fetched(t.Context()) != nil })
	if err := jwks.Fetched(t.Context()); !strings.Contains(err.Error(), "are used until") {
		t.Errorf("got %v, want until when the keys are used", err)
	}
	if err := jwks.Usable(t.Context()); err != nil {
		t.Errorf("not usable, although there are keys: %v", err)
	}
	if got := outcome(t, tokens, known); got != "ann" {
		t.Errorf("a known key: got %q, want it to be used", got)
	}
	if got := outcome(t, tokens, by(t, "unknown", rsaKey())); got != "503" {
		t.Errorf("an unknown key: got %q, want 503", got)
	}
	clock.Store(int64(o.JWKS.MaxAge + time.Minute))
	if got := outcome(t, tokens, known); got != "503" {
		t.Errorf("keys that are too old: got %q, want 503", got)
	}
	if err := jwks.Usable(t.Context()); err == nil || !strings.Contains(err.Error(), "JWT_JWKS_MAX_AGE") {
		t.Errorf("keys that are too old: got %v", err)
	}
	i.publish(t, published())
	testkit.Eventually(t, patience, "the keys to be back", func() bool { return outcome(t, tokens, known) == "ann" })
	for _, result := range []string{"fetched", "failed"} {
		if value(t, registry, "sluice_jwks_fetches_total", result) == 0 {
			t.Errorf("no fetch is counted as %s", result)
		}
	}
	if value(t, registry, "sluice_jwks_keys", "") != 3 ||
		value(t, registry, "sluice_jwks_fetched_timestamp_seconds", "") == 0 {
		t.Error("the metrics do not say how many keys there are, and since when")
	}
}

// TestJWKSSlow: a request does not wait for longer than it should, and others are answered meanwhile.
func TestJWKSSlow(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, published())
	o := options(i.URL)
	o.JWKS.Refresh, o.JWKS.Spacing, o.JWKS.Patience = never, time.Millisecond, 50*time.Millisecond
	tokens := newTokens(t, o)
	known := by(t, "rsa", rsaKey())
	testkit.Eventually(t, patience, "the keys", func() bool { return outcome(t, tokens, known) == "ann" })
	i.does(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	asked := i.fetches.Load()
	unknown := by(t, "unknown", rsaKey())
	testkit.Eventually(t, patience, "the issuer to be asked", func() bool {
		return outcome(t, tokens, unknown) == "503" && i.fetches.Load() > asked
	})
	var each sync.WaitGroup
	for range 1000 { // more than may wait
		each.Go(func() {
			if got := outcome(t, tokens, unknown); got != "503" {
				t.Errorf("an unknown key: got %q", got)
			}
		})
	}
	if got := outcome(t, tokens, known); got != "ann" {
		t.Errorf("a known key: got %q", got)
	}
	each.Wait()
}

// TestNoKeysAtAll: an api whose issuer was never reached says so, and asks for the keys again by itself.
func TestNoKeysAtAll(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, published())
	i.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	o := options(i.URL)
	o.JWKS.Spacing, o.JWKS.Patience = time.Millisecond, 50*time.Millisecond
	tokens := newTokens(t, o)
	r := by(t, "rsa", rsaKey())
	if got := outcome(t, tokens, r); got != "503" {
		t.Errorf("got %q, want 503", got)
	}
	testkit.Eventually(t, patience, "the reason", func() bool {
		err := tokens.JWKS().Usable(t.Context())
		return err != nil && strings.Contains(err.Error(), "404")
	})
	i.publish(t, published())
	testkit.Eventually(t, patience, "the keys", func() bool { return outcome(t, tokens, r) == "ann" })
}

// TestBadKeySets: what is no set of keys replaces none, and nothing is fetched from where an answer leads.
func TestBadKeySets(t *testing.T) {
	t.Parallel()
	elsewhere := newIssuer(t, published())
	weak := `{"kty":"RSA","kid":"rsa","e":"AQAB","n":"` + strings.Repeat("A", 100) + `"}`
	for name, answer := range map[string]http.HandlerFunc{
		"no JSON":        says("<html>"),
		"no keys":        says(`{"keys":[]}`),
		"a weak key":     says(`{"keys":[` + weak + `]}`),
		"a secret":       says(`{"keys":[{"kty":"oct","kid":"rsa","k":"` + strings.Repeat("A", 64) + `"}]}`),
		"without end":    says(`{"keys":[],"pad":"` + strings.Repeat("x", 600<<10) + `"}`),
		"too many":       says(`{"keys":[` + strings.TrimSuffix(strings.Repeat(weak+",", 100), ",") + `]}`),
		"leads away":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"not authorized": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		i := newIssuer(t, nil)
		i.does(answer)
		o := options(i.URL)
		o.Algorithms = append(o.Algorithms, "RS512")
		o.JWKS.Spacing = never
		tokens := newTokens(t, o)
		if got := outcome(t, tokens, by(t, "rsa", rsaKey())); got != "503" {
			t.Errorf("%s: got %q, want 503", name, got)
		}
	}
	if elsewhere.fetches.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// TestKeysThatAreNoneOfOurs: a set with keys of other kinds is read for those that are of use.
func TestKeysThatAreNoneOfOurs(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, nil)
	good := strings.TrimSuffix(strings.TrimPrefix(string(keySet(t, map[string]crypto.PublicKey{
		"rsa": rsaKey().Public(),
	})), `{"keys":[`), `]}`)
	enc := strings.Replace(strings.Replace(good, `"kid":"rsa"`, `"kid":"enc"`, 1), `{`, `{"use":"enc",`, 1)
	rs512 := strings.Replace(strings.Replace(good, `"kid":"rsa"`, `"kid":"rs512"`, 1), `{`, `{"alg":"RS512",`, 1)
	i.does(says(`{"keys":[{"kty":"post-quantum","kid":"x"},` + enc + `,` + rs512 + `,` + good + `]}`))
	tokens := newTokens(t, options(i.URL))
	for id, want := range map[string]string{"rsa": "ann", "enc": "401 unknown-key", "rs512": "401 unknown-key"} {
		if got := outcome(t, tokens, by(t, id, rsaKey())); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// value reads a metric; result is the value of its label, if it has one.
func value(t testing.TB, registry *prometheus.Registry, name, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labelled := len(metric.GetLabel()) > 0 && metric.GetLabel()[0].GetValue() == result
			if family.GetName() == name && (labelled || result == "" && len(metric.GetLabel()) == 0) {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}
