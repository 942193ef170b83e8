package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jws/jwsbb"

	"sluice/pipeline"
)

const (
	// maxTokenBytes is far above what issuers make, and below what the server takes as headers.
	maxTokenBytes = 8 << 10
	// maxLeeway is how far the clocks of issuer and api may be apart.
	maxLeeway = 5 * time.Minute
	// tokenRealm is what buyers' tokens are asked for.
	tokenRealm = `Bearer realm="sluice"`
)

// TokenOptions are the settings of AUTH_MODE=jwt. Exactly one of Key and JWKS.URL is given.
type TokenOptions struct {
	Issuer     string        // JWT_ISSUER: the claim iss
	Audience   string        // JWT_AUDIENCE: the claim aud has it
	Algorithms []string      // JWT_ALGORITHMS: what tokens may be signed with
	Claim      string        // JWT_CLAIM: the text that names the buyer, such as sub
	Leeway     time.Duration // JWT_LEEWAY: how far clocks may be apart
	Key        string        // JWT_KEY: a JWK, a JWK set or PEM
	JWKS       JWKSOptions
	Metrics    *Metrics         // nil: nothing is counted
	Now        func() time.Time // nil: time.Now
}

// Validate returns an error (pipeline.KindInvalid) that names the first setting by which no token could be verified,
// or any. It repeats no key.
func (o *TokenOptions) Validate() error {
	invalid := func(format string, args ...any) error { return pipeline.Errorf(pipeline.KindInvalid, format, args...) }
	switch {
	case o.Issuer == "":
		return invalid("JWT_ISSUER is missing: AUTH_MODE=jwt must know whose tokens it takes (the claim iss)")
	case o.Audience == "":
		return invalid("JWT_AUDIENCE is missing: AUTH_MODE=jwt takes only tokens that are meant for it (the claim aud)")
	case (o.Key == "") == (o.JWKS.URL == ""):
		return invalid("AUTH_MODE=jwt needs either JWT_JWKS_URL or JWT_KEY: where the keys of tokens are, or the key itself")
	case o.Claim == "":
		return invalid("JWT_CLAIM is empty: it names the claim that is the buyer, such as sub")
	case o.Leeway < 0 || o.Leeway > maxLeeway:
		return invalid("JWT_LEEWAY %s: use 0s to %s", o.Leeway, maxLeeway)
	case len(o.Algorithms) == 0:
		return invalid("JWT_ALGORITHMS is empty")
	}
	for _, name := range o.Algorithms {
		if !knownAlgorithm(name) {
			return invalid("JWT_ALGORITHMS: %q is no algorithm that a token can be trusted by", name)
		}
		if o.JWKS.URL != "" && strings.HasPrefix(name, "HS") {
			return invalid("JWT_ALGORITHMS: %s needs a secret in JWT_KEY; what is at a URL is no secret", name)
		}
	}
	if o.JWKS.URL != "" {
		return o.JWKS.validate()
	}
	_, err := readKeys([]byte(o.Key), o.Algorithms, true)
	if err != nil {
		return invalid("JWT_KEY: %s", err)
	}
	return nil
}

// keySource is where keys come from.
type keySource interface {
	// current returns the keys to verify with. Errors: ErrKeysUnavailable.
	current(ctx context.Context) (*keySet, error)
	// newer returns the keys after a look at whether there are newer ones than seen, which lacked a token's key. Where
	// there are none, it returns seen. Errors: ErrKeysUnavailable.
	newer(ctx context.Context, seen *keySet) (*keySet, error)
}

// fixed are keys that never change.
type fixed struct{ keys *keySet }

func (f fixed) current(context.Context) (*keySet, error)            { return f.keys, nil }
func (f fixed) newer(_ context.Context, _ *keySet) (*keySet, error) { return f.keys, nil }

// Tokens identifies buyers by JSON Web Tokens (RFC 7519) in compact form. Which key and algorithm a token is verified
// with, the settings and the keys say; what a token itself says of keys (jwk, jku, x5u, x5c) is not looked at.
type Tokens struct {
	options  TokenOptions
	keys     keySource
	jwks     *JWKS // nil with a fixed key
	verified verified
}

// NewTokens returns Tokens over options that are valid. Where keys come from a URL, run JWKS too.
func NewTokens(o TokenOptions) (*Tokens, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	t := &Tokens{options: o}
	if o.JWKS.URL != "" {
		t.jwks = newJWKS(&o)
		t.keys = t.jwks
		return t, nil
	}
	keys, err := readKeys([]byte(o.Key), o.Algorithms, true)
	t.keys = fixed{&keySet{keys: keys, anyID: true}}
	return t, err
}

// JWKS returns what fetches the keys, or nil where a setting is the key.
func (t *Tokens) JWKS() *JWKS { return t.jwks }

// Authenticate returns the buyer that the request's token names. Errors: *Refused, *BadHeader where the header is there
// twice, ErrKeysUnavailable (pipeline.KindUnavailable).
func (t *Tokens) Authenticate(r *http.Request) (string, error) {
	token, err := bearer(r.Header)
	if err != nil {
		t.options.Metrics.refused(malformed)
		return "", err
	}
	if token == "" {
		t.options.Metrics.refused(missing)
		return "", &Refused{tokenRealm, "send the header Authorization: Bearer, with a token"}
	}
	keys, err := t.keys.current(r.Context())
	if err != nil {
		t.options.Metrics.refused(unavailable)
		return "", err
	}
	now := t.options.Now()
	hash := tokenHash(sha256.Sum256([]byte(token)))
	if user, found := t.verified.find(&hash, keys, now); found {
		t.options.Metrics.remembered.Inc()
		return user, nil
	}
	payload, keys, err := t.verify(r.Context(), token, keys)
	if err != nil {
		return "", err
	}
	user, expires, err := t.readClaims(payload, now)
	if err != nil {
		return "", err
	}
	t.options.Metrics.verified.Inc()
	t.verified.add(&hash, verifiedToken{user, expires, keys})
	return user, nil
}

// verify checks the signature, and returns what was signed and the keys that say so.
func (t *Tokens) verify(ctx context.Context, token string, keys *keySet) ([]byte, *keySet, error) {
	if len(token) > maxTokenBytes {
		return nil, nil, t.refuse(malformed, fmt.Sprintf("the token is longer than %d bytes", maxTokenBytes))
	}
	protected, _, _, err := jwsbb.SplitCompactString(token)
	if err != nil {
		return nil, nil, t.refuse(malformed, "the token is no signed JSON Web Token in compact form")
	}
	header := jwsbb.HeaderParseCompact(protected)
	name, err := jwsbb.HeaderGetString(header, jws.AlgorithmKey)
	if err != nil {
		return nil, nil, t.refuse(malformed, "the token's header can't be read, or names no algorithm")
	}
	if !slices.Contains(t.options.Algorithms, name) {
		return nil, nil, t.refuse(algorithm, "the token is not signed by "+strings.Join(t.options.Algorithms, ", "))
	}
	id := ""
	if jwsbb.HeaderHas(header, jws.KeyIDKey) {
		if id, err = jwsbb.HeaderGetString(header, jws.KeyIDKey); err != nil {
			return nil, nil, t.refuse(malformed, "the token's kid is no text")
		}
	}
	fitting, named := keys.candidates(id, name)
	if !named {
		if keys, err = t.keys.newer(ctx, keys); err != nil {
			t.options.Metrics.refused(unavailable)
			return nil, nil, err
		}
		if fitting, named = keys.candidates(id, name); !named {
			return nil, nil, t.refuse(unknownKey, "the token's key is none of the issuer's")
		}
	}
	payload, err := verifyWith(fitting, token, name)
	if err != nil && id == "" {
		return t.verifyNameless(ctx, token, name, keys)
	}
	if err != nil {
		return nil, nil, t.refuse(badSignature, badSignatureDetail)
	}
	return payload, keys, nil
}

const badSignatureDetail = "the token's signature is not valid"

// verifyNameless verifies a token that names no key and that none of the known ones has signed: one may be new.
func (t *Tokens) verifyNameless(ctx context.Context, token, name string, known *keySet) ([]byte, *keySet, error) {
	keys, err := t.keys.newer(ctx, known)
	if err != nil {
		t.options.Metrics.refused(unavailable)
		return nil, nil, err
	}
	err = jws.VerifyError()
	var payload []byte
	if keys != known {
		fitting, _ := keys.candidates("", name)
		payload, err = verifyWith(fitting, token, name)
	}
	if err != nil {
		return nil, nil, t.refuse(badSignature, badSignatureDetail)
	}
	return payload, keys, nil
}

// verifyWith tries some keys, of which one must have signed the token. Errors: jws.VerifyError, of the last key.
func verifyWith(keys []verifyKey, token, name string) (payload []byte, err error) {
	pinned, known := jwa.LookupSignatureAlgorithm(name)
	if !known || len(keys) == 0 {
		return nil, jws.VerifyError()
	}
	for _, key := range keys {
		if payload, err = jws.VerifyCompactFast(key.material, []byte(token), pinned); err == nil {
			return payload, nil
		}
	}
	return nil, err
}

// refuse counts a refusal, and returns it as an error.
func (t *Tokens) refuse(why reason, detail string) error {
	t.options.Metrics.refused(why)
	return &Refused{
		fmt.Sprintf("%s, error=\"invalid_token\", error_description=%q", tokenRealm, string(why)),
		detail,
	}
}
