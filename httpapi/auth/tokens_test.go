package auth_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/httpapi/auth"
)

var described = regexp.MustCompile(`error_description="([a-z-]+)"`)

func refusal(refused *auth.Refused) string {
	if found := described.FindStringSubmatch(refused.Challenge); found != nil {
		return "401 " + found[1]
	}
	return "401"
}

// tokenCase is a request and what is made of it.
type tokenCase struct {
	name          string
	authorization []string
	want          string
}

// tokenCases are the ways in which a token can be right or wrong.
func tokenCases(t testing.TB) []tokenCase {
	t.Helper()
	now, fine := time.Now(), goodClaims()
	rs256 := header{"alg": "RS256", "kid": "rsa"}
	bearer := func(token string) []string { return []string{"Bearer " + token} }
	says := func(c claims) []string { return bearer(good(t, c)) }
	asHeader := func(h header) []string { return bearer(sign(t, h, fine, jwa.RS256(), rsaKey())) }
	by := func(h header, c claims, algorithm jwa.SignatureAlgorithm, key any) []string {
		return bearer(sign(t, h, c, algorithm, key))
	}
	token := good(t, fine)
	first, rest, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	return []tokenCase{
		{"a good one", says(fine), "ann"},
		{"the same again", says(fine), "ann"},
		{"of an elliptic curve", bearer(sign(t, header{"alg": "ES256", "kid": "ec"}, fine, jwa.ES256(), ecKey())), "ann"},
		{"of Edwards' curve", bearer(sign(t, header{"alg": "EdDSA", "kid": "ed"}, fine, jwa.EdDSA(), edKey())), "ann"},
		{"without a key id", asHeader(header{"alg": "RS256"}), "ann"},
		{"the scheme in capitals", []string{"BEARER " + token}, "ann"},
		{"one of several audiences", says(fine.with("aud", []string{"else", audienceName})), "ann"},

		{"no header", nil, "401"},
		{"an empty header", []string{""}, "401"},
		{"no token", []string{"Bearer "}, "401"},
		{"another scheme", []string{"Basic YW5uOmFubg=="}, "401"},
		{"twice the header", []string{"Bearer " + token, "Bearer " + token}, "400 Authorization"},
		{"no token at all", bearer("x"), "401 malformed"},
		{"two parts", bearer(first + "." + payload), "401 malformed"},
		{"four parts", bearer(token + ".x"), "401 malformed"},
		{"encrypted", bearer("a.b.c.d.e"), "401 malformed"},
		{"64 KiB", bearer(good(t, fine.with("pad", strings.Repeat("x", 64<<10)))), "401 malformed"},
		{"JSON", bearer(`{"payload":"` + payload + `","protected":"` + first + `","signature":"` + signature + `"}`), "401 malformed"},
		{"a header that is no JSON", bearer("e30x." + payload + "." + signature), "401 malformed"},
		{"a key id that is a number", asHeader(header{"alg": "RS256", "kid": 1}), "401 malformed"},
		{"claims that are no object", bearer(signText(t, part(rs256)+"."+part([]int{1}), jwa.RS256(), rsaKey())), "401 malformed"},
		{"an exp that is a text", says(fine.with("exp", "tomorrow")), "401 malformed"},

		{"no algorithm", asHeader(header{"kid": "rsa"}), "401 malformed"},
		{"alg none", bearer(part(header{"alg": "none", "kid": "rsa"}) + "." + payload + "."), "401 algorithm"},
		{"alg None", bearer(part(header{"alg": "None", "kid": "rsa"}) + "." + payload + "."), "401 algorithm"},
		{"a public key as the secret of HS256", bearer(confused(t, header{"alg": "HS256", "kid": "rsa"})), "401 algorithm"},
		{"said to be RS256, signed by HS256", bearer(confused(t, rs256)), "401 signature"},
		{"RS512, which is not in the settings", by(header{"alg": "RS512"}, fine, jwa.RS512(), rsaKey()), "401 algorithm"},
		{"RS256 with the key of ES256", asHeader(header{"alg": "RS256", "kid": "ec"}), "401 signature"},
		{
			"ES256 with the key of RS256", by(header{"alg": "ES256", "kid": "rsa"}, fine, jwa.ES256(), ecKey()),
			"401 signature",
		},

		{"an unknown key id", asHeader(header{"alg": "RS256", "kid": "none"}), "401 unknown-key"},
		{"another's key under a known id", bearer(sign(t, rs256, fine, jwa.RS256(), otherRSA())), "401 signature"},
		{"another's key without an id", by(header{"alg": "RS256"}, fine, jwa.RS256(), otherRSA()), "401 signature"},
		{"no signature", bearer(first + "." + payload + "."), "401 signature"},
		{"other claims", bearer(first + "." + part(fine.with("sub", "eve")) + "." + signature), "401 signature"},
		{"a key in the token (jwk)", bearer(embedded(t, "jwk")), "401 signature"},
		{"a URL of keys in the token (jku)", bearer(embedded(t, "jku")), "401 signature"},
		{"a certificate's URL in the token (x5u)", bearer(embedded(t, "x5u")), "401 signature"},
		{"a certificate in the token (x5c)", bearer(embedded(t, "x5c")), "401 signature"},
		{"something critical", asHeader(header{"alg": "RS256", "crit": []string{"x"}, "x": 1}), "401 signature"},

		{"expired", says(fine.with("exp", now.Add(-time.Minute).Unix())), "401 expired"},
		{"expired within the leeway", says(fine.with("exp", now.Add(-5*time.Second).Unix())), "ann"},
		{"without exp", says(fine.with("exp", nil)), "401 claims"},
		{"not yet valid", says(fine.with("nbf", now.Add(time.Minute).Unix())), "401 not-yet-valid"},
		{"not yet valid, within the leeway", says(fine.with("nbf", now.Add(5*time.Second).Unix())), "ann"},
		{"made in the future", says(fine.with("iat", now.Add(time.Minute).Unix())), "401 not-yet-valid"},
		{"of another issuer", says(fine.with("iss", "https://evil.example.com/")), "401 issuer"},
		{"of no issuer", says(fine.with("iss", nil)), "401 issuer"},
		{"for another audience", says(fine.with("aud", "another-shop")), "401 audience"},
		{"for nobody", says(fine.with("aud", nil)), "401 audience"},
		{"no sub", says(fine.with("sub", nil)), "401 claims"},
		{"an empty sub", says(fine.with("sub", "")), "401 claims"},
		{"a sub that no buyer can have", says(fine.with("sub", "a{b}")), "401 claims"},
		{"a sub of 129 bytes", says(fine.with("sub", strings.Repeat("u", 129))), "401 claims"},
	}
}

// confused signs with the published key as a secret, which everybody knows.
func confused(t testing.TB, h header) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	must(t, err)
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return sign(t, h, goodClaims(), jwa.HS256(), secret)
}

// embedded is signed by another's key, which it brings along in one of the ways of RFC 7515.
func embedded(t testing.TB, how string) string {
	t.Helper()
	brought := map[string]any{
		"jwk": json.RawMessage(keySet(t, published())), "jku": "https://evil.example.com/keys",
		"x5u": "https://evil.example.com/chain", "x5c": []string{base64.StdEncoding.EncodeToString([]byte("x"))},
	}
	h := header{"alg": "RS256", "kid": "rsa", how: brought[how]}
	if how == "jwk" {
		h[how] = map[string]any{
			"kty": "RSA", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(otherRSA().N.Bytes()), "kid": "rsa",
		}
	}
	return sign(t, h, goodClaims(), jwa.RS256(), otherRSA())
}

// TestTokens: each way in which a token can be wrong has its own answer, and only what the issuer signed for this shop
// names a buyer.
func TestTokens(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	o := options(newIssuer(t, published()).URL)
	o.Metrics = auth.NewMetrics(registry)
	tokens := newTokens(t, o)
	for _, c := range tokenCases(t) {
		if got := outcome(t, tokens, request(t, c.authorization...)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	for _, result := range []string{"verified", "remembered", "missing", "malformed", "algorithm", "signature"} {
		if value(t, registry, "sluice_buyer_tokens_total", result) == 0 {
			t.Errorf("nothing is counted as %s", result)
		}
	}
}

// TestTokensOfAFixedKey: JWT_KEY may be PEM, a JWK or a secret, and a key without an id verifies tokens of any.
func TestTokensOfAFixedKey(t *testing.T) {
	t.Parallel()
	der, err := x509.MarshalPKIXPublicKey(ecKey().Public())
	must(t, err)
	secret := sha256.Sum256([]byte("a secret"))
	jwkSecret := `{"kty":"oct","k":"` + base64.RawURLEncoding.EncodeToString(secret[:]) + `"}`
	token := sign(t, header{"alg": "ES256", "kid": "whatever"}, goodClaims(), jwa.ES256(), ecKey())
	byHMAC := sign(t, header{"alg": "HS256"}, goodClaims(), jwa.HS256(), secret[:])
	for name, c := range map[string]struct {
		key, algorithms, token, want string
	}{
		"PEM":                 {string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "ES256", token, "ann"},
		"JWK set":             {string(keySet(t, published())), "ES256", sign(t, header{"alg": "ES256", "kid": "ec"}, goodClaims(), jwa.ES256(), ecKey()), "ann"},
		"JWK set, unknown id": {string(keySet(t, published())), "ES256", token, "401 unknown-key"},
		"secret":              {jwkSecret, "HS256", byHMAC, "ann"},
		"another secret": {
			jwkSecret, "HS256", sign(t, header{"alg": "HS256"}, goodClaims(), jwa.HS256(), der), "401 signature",
		},
	} {
		o := options("")
		o.Key, o.Algorithms = c.key, strings.Split(c.algorithms, ",")
		if got := outcome(t, newTokens(t, o), request(t, "Bearer "+c.token)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestTheClaimThatIsTheBuyer: JWT_CLAIM may name another claim than sub.
func TestTheClaimThatIsTheBuyer(t *testing.T) {
	t.Parallel()
	o := options(newIssuer(t, published()).URL)
	o.Claim = "https://shop.example.com/customer"
	tokens := newTokens(t, o)
	named := goodClaims().with(o.Claim, "customer-7")
	if got := outcome(t, tokens, request(t, "Bearer "+good(t, named))); got != "customer-7" {
		t.Errorf("got %q", got)
	}
	for _, wrong := range []claims{goodClaims(), named.with(o.Claim, 7), named.with(o.Claim, []string{"a"})} {
		if got := outcome(t, tokens, request(t, "Bearer "+good(t, wrong))); got != "401 claims" {
			t.Errorf("got %q, want a refusal of its claims", got)
		}
	}
}

// TestAVerifiedTokenEndsWithItsTime: what is remembered of a token never outlives it.
func TestAVerifiedTokenEndsWithItsTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := now
	o := options("")
	o.Key, o.Leeway, o.Now = string(keySet(t, published())), 0, func() time.Time { return clock }
	registry := prometheus.NewRegistry()
	o.Metrics = auth.NewMetrics(registry)
	tokens := newTokens(t, o)
	r := request(t, "Bearer "+good(t, goodClaims().with("exp", now.Unix()+60).with("iat", nil)))
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{0, "ann"},
		{time.Second, "ann"},
		{59 * time.Second, "ann"},
		{61 * time.Second, "401 expired"},
		{time.Hour, "401 expired"},
	} {
		clock = now.Add(step.at)
		if got := outcome(t, tokens, r); got != step.want {
			t.Errorf("after %s: got %q, want %q", step.at, got, step.want)
		}
	}
	for result, want := range map[string]float64{"verified": 1, "remembered": 2, "expired": 2} {
		if got := value(t, registry, "sluice_buyer_tokens_total", result); got != want {
			t.Errorf("%v requests are counted as %s, want %v", got, result, want)
		}
	}
}

// TestTokenOptions: settings by which no token could be verified, or any, are refused with the name of the setting, and
// without the key.
func TestTokenOptions(t *testing.T) {
	t.Parallel()
	short := `{"kty":"oct","k":"c2hvcnQ"}`
	for name, change := range map[string]func(*auth.TokenOptions){
		"JWT_ISSUER":       func(o *auth.TokenOptions) { o.Issuer = "" },
		"JWT_AUDIENCE":     func(o *auth.TokenOptions) { o.Audience = "" },
		"JWT_CLAIM":        func(o *auth.TokenOptions) { o.Claim = "" },
		"JWT_LEEWAY":       func(o *auth.TokenOptions) { o.Leeway = time.Hour },
		"JWT_ALGORITHMS":   func(o *auth.TokenOptions) { o.Algorithms = []string{"none"} },
		"HS256":            func(o *auth.TokenOptions) { o.Algorithms = []string{"RS256", "HS256"} },
		"JWT_JWKS_MAX_AGE": func(o *auth.TokenOptions) { o.JWKS.MaxAge = time.Minute },
		"JWT_JWKS_URL":     func(o *auth.TokenOptions) { o.JWKS.URL = "http://issuer.example.com/keys" },
		"JWT_JWKS_URL ":    func(o *auth.TokenOptions) { o.JWKS.URL = "https://u:p@issuer.example.com/keys" },
		"or JWT_KEY":       func(o *auth.TokenOptions) { o.Key = string(keySet(t, published())) },
		"needs either":     func(o *auth.TokenOptions) { o.JWKS.URL = "" },
		"JWT_KEY: neither": func(o *auth.TokenOptions) { o.JWKS.URL, o.Key = "", "hunter2" },
		"JWT_KEY: none":    func(o *auth.TokenOptions) { o.JWKS.URL, o.Key, o.Algorithms = "", short, []string{"HS256"} },
		"JWT_KEY: none of": func(o *auth.TokenOptions) {
			o.JWKS.URL, o.Key, o.Algorithms = "", string(keySet(t, published())), []string{"HS256"}
		},
	} {
		o := options("https://issuer.example.com/keys")
		must(t, o.Validate())
		change(&o)
		err := o.Validate()
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
