package httpapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"sluice/httpapi"
	"sluice/httpapi/auth"
)

// buyerKey signs the tokens of the tests.
var buyerKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

const buyerIssuer = "https://issuer.example.com/"

// tokenOf is a token that says who the buyer is.
func tokenOf(t testing.TB, user string) string {
	t.Helper()
	token, err := jwt.NewBuilder().Issuer(buyerIssuer).Audience([]string{"shop"}).Subject(user).IssuedAt(time.Now()).
		Expiration(time.Now().Add(time.Hour)).Build()
	must(t, err)
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.ES256(), buyerKey()))
	must(t, err)
	return string(signed)
}

func publicKey(t testing.TB) string {
	t.Helper()
	key, err := jwk.Import(buyerKey().Public())
	must(t, err)
	text, err := json.Marshal(key)
	must(t, err)
	return string(text)
}

// tokenAuth identifies buyers by tokens whose keys are at a URL.
func tokenAuth(t testing.TB, url string) *auth.Tokens {
	t.Helper()
	tokens, err := auth.NewTokens(auth.TokenOptions{
		Issuer: buyerIssuer, Audience: "shop", Algorithms: []string{"ES256"}, Claim: "sub",
		JWKS: auth.JWKSOptions{URL: url, MaxAge: time.Hour},
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { tokens.JWKS().Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return tokens
}

// asToken replaces the header of development by a token.
func asToken(c call, token string) call {
	return c.with("X-User-Id", "").with("Authorization", "Bearer "+token)
}

// buyerCalls are one call of each operation that is for buyers, by the contract.
func buyerCalls(c *contract) (calls []call) {
	for path, item := range c.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Security == nil || (*op.Security)[0]["token"] == nil {
				continue
			}
			path := strings.NewReplacer("{sale}", "drop-1", "{order}", "01971f4e-8a3b-7c5d-9e2f-1a2b3c4d5e6f").Replace(path)
			calls = append(calls, call{method: method, path: path})
		}
	}
	return calls
}

// giveIdentity asks all that is for buyers of an api that never got the keys of their tokens.
func giveIdentity(t *testing.T, c *contract) {
	issuer := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(issuer.Close)
	tokens := tokenAuth(t, issuer.URL)
	r := newRig(t, rigOptions{contract: c, deps: func(d *httpapi.Deps) { d.Auth = tokens }})
	calls := buyerCalls(c)
	if len(calls) < 8 {
		t.Fatalf("the contract has %d operations for buyers", len(calls))
	}
	for _, call := range calls {
		got := r.expect(asToken(call, tokenOf(t, "ann")), 503, "identity-unavailable")
		if got.header.Get("Retry-After") != "5" {
			t.Errorf("%s %s: got Retry-After %q", call.method, call.path, got.header.Get("Retry-After"))
		}
		r.expect(call.with("X-User-Id", "ann"), 401, "unauthenticated")
	}
}

// TestBuyersByToken: with tokens, the header of development names nobody, and an order is the token's buyer's.
func TestBuyersByToken(t *testing.T) {
	t.Parallel()
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(publicKey(t)))
	}))
	t.Cleanup(keys.Close)
	tokens := tokenAuth(t, keys.URL)
	r := newRig(t, rigOptions{deps: func(d *httpapi.Deps) { d.Auth = tokens }})
	r.create(newSale("drop-1", 10))
	ann, bob := tokenOf(t, "ann"), tokenOf(t, "bob")
	got := r.expect(order("drop-1", "", "").with("X-User-Id", "ann"), 401, "unauthenticated")
	if challenge := got.header.Get("Www-Authenticate"); !strings.HasPrefix(challenge, "Bearer ") {
		t.Errorf("got the challenge %q", challenge)
	}
	own := r.expect(asToken(order("drop-1", "", ""), ann), 202, "").header.Get("Location")
	r.expect(asToken(get(own, ""), ann), 200, "")
	r.expect(asToken(get(own, ""), bob).with("X-User-Id", "ann"), 404, "unknown-order")
	forged := ann[:strings.LastIndexByte(ann, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, 64))
	wrong := r.expect(asToken(get(own, ""), forged), 401, "unauthenticated")
	if challenge := wrong.header.Get("Www-Authenticate"); !strings.Contains(challenge, `error="invalid_token"`) {
		t.Errorf("got the challenge %q", challenge)
	}
	twice := asToken(get(own, ""), ann)
	twice.header["Authorization"] = append(twice.header["Authorization"], "Bearer "+bob)
	r.expect(twice, 400, "invalid-request")

	large := r.raw("GET " + own + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("x", 64<<10) + "\r\n\r\n")
	if large.status != 431 || large.code() != "headers-too-large" {
		t.Errorf("a token of 64 KiB: got %d %q, want 431", large.status, large.code())
	}
	r.expect(asToken(get(own, ""), strings.Repeat("x", 9<<10)), 401, "unauthenticated")
	if log := r.logs.String(); strings.Contains(log, ann) || strings.Contains(log, "forged") {
		t.Error("a token is in the log")
	}
}
