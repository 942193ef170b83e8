package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"sluice/httpapi/auth"
	"sluice/pipeline"
)

const (
	issuerName   = "https://issuer.example.com/"
	audienceName = "shop"
)

// The keys of the tests are made once: RSA takes a moment.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return made(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSA = sync.OnceValue(func() *rsa.PrivateKey { return made(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(func() *ecdsa.PrivateKey { return made(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey    = sync.OnceValue(func() ed25519.PrivateKey {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return made(private, err)
	})
)

func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// header and claims are what a token says.
type (
	header map[string]any
	claims map[string]any
)

func goodClaims() claims {
	return claims{
		"iss": issuerName, "aud": audienceName, "sub": "ann",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
}

// with returns the claims with some changed; nil takes one away.
func (c claims) with(name string, value any) claims {
	changed := claims{}
	for k, v := range c {
		changed[k] = v
	}
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return changed
}

// part is a segment of a token.
func part(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// sign makes a token. The header says what it says; the signature is that of the algorithm.
func sign(t testing.TB, h header, c claims, algorithm jwa.SignatureAlgorithm, key any) string {
	t.Helper()
	return signText(t, part(h)+"."+part(c), algorithm, key)
}

func signText(t testing.TB, text string, algorithm jwa.SignatureAlgorithm, key any) string {
	t.Helper()
	signer, err := jws.SignerFor(algorithm)
	must(t, err)
	signature, err := signer.Sign(key, []byte(text))
	must(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// good is a token that every test but those about keys takes.
func good(t testing.TB, c claims) string {
	t.Helper()
	return sign(t, header{"alg": "RS256", "kid": "rsa", "typ": "JWT"}, c, jwa.RS256(), rsaKey())
}

// issuer publishes keys by HTTP, and counts how often they are asked for.
type issuer struct {
	*httptest.Server
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t testing.TB, keys map[string]crypto.PublicKey) *issuer {
	t.Helper()
	i := &issuer{}
	i.publish(t, keys)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		(*i.answer.Load())(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

// does has the issuer answer in some way.
func (i *issuer) does(h http.HandlerFunc) { i.answer.Store(&h) }

// publish replaces the keys.
func (i *issuer) publish(t testing.TB, keys map[string]crypto.PublicKey) {
	t.Helper()
	body := keySet(t, keys)
	i.does(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
}

func keySet(t testing.TB, keys map[string]crypto.PublicKey) []byte {
	t.Helper()
	set := jwk.NewSet()
	for id, key := range keys {
		made, err := jwk.Import(key)
		must(t, err)
		must(t, made.Set(jwk.KeyIDKey, id))
		must(t, set.AddKey(made))
	}
	text, err := json.Marshal(set)
	must(t, err)
	return text
}

// published are the keys of most tests.
func published() map[string]crypto.PublicKey {
	return map[string]crypto.PublicKey{
		"rsa": rsaKey().Public(), "ec": ecKey().Public(), "ed": edKey().Public(),
	}
}

// options are those of a shop that takes the issuer's tokens.
func options(jwksURL string) auth.TokenOptions {
	return auth.TokenOptions{
		Issuer: issuerName, Audience: audienceName, Algorithms: auth.DefaultAlgorithms, Claim: "sub",
		Leeway: 30 * time.Second, JWKS: auth.JWKSOptions{URL: jwksURL, MaxAge: time.Hour},
	}
}

// newTokens runs what fetches the keys until the test ends.
func newTokens(t testing.TB, o auth.TokenOptions) *auth.Tokens {
	t.Helper()
	tokens, err := auth.NewTokens(o)
	must(t, err)
	if jwks := tokens.JWKS(); jwks != nil {
		var running sync.WaitGroup
		running.Go(func() { jwks.Run(t.Context()) })
		t.Cleanup(running.Wait) // t.Context has ended by then
	}
	return tokens
}

// request carries some values of the header Authorization.
func request(t testing.TB, authorization ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	must(t, err)
	if len(authorization) > 0 {
		r.Header["Authorization"] = authorization
	}
	return r
}

// outcome is who a request comes from, or in a word why that is not known: the error_description of the challenge,
// which is also the label of the metric.
func outcome(t testing.TB, a interface {
	Authenticate(*http.Request) (string, error)
}, r *http.Request,
) string {
	t.Helper()
	user, err := a.Authenticate(r)
	if err == nil {
		return user
	}
	if user != "" {
		t.Errorf("got the user %q beside the error %v", user, err)
	}
	var refused *auth.Refused
	var header *auth.BadHeader
	switch {
	case errors.As(err, &refused):
		return refusal(refused)
	case errors.As(err, &header):
		return "400 " + header.Name
	case errors.Is(err, auth.ErrKeysUnavailable) && pipeline.KindOf(err) == pipeline.KindUnavailable:
		return "503"
	default:
		t.Errorf("got an error of no kind: %v", err)
		return ""
	}
}
