package auth_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
)

// FuzzToken: whatever a header says, only what the issuer signed, byte for byte, names a buyer.
func FuzzToken(f *testing.F) {
	signed := map[string]bool{} // header and claims of every token that the issuer signed
	for _, c := range tokenCases(f) {
		for _, authorization := range c.authorization {
			f.Add(authorization)
			if c.want == "ann" {
				signed[contentOf(authorization)] = true
			}
		}
	}
	o := options("")
	o.Key = string(keySet(f, published()))
	tokens := newTokens(f, o)
	f.Fuzz(func(t *testing.T, authorization string) {
		got := outcome(t, tokens, request(t, authorization))
		if got == "ann" && signed[contentOf(authorization)] || strings.HasPrefix(got, "401") {
			return
		}
		t.Errorf("got %q for %q", got, authorization)
	})
}

// contentOf is what the signature of a token covers.
func contentOf(authorization string) string {
	_, token, _ := strings.Cut(authorization, " ")
	token = strings.TrimSpace(token)
	if last := strings.LastIndexByte(token, '.'); last >= 0 {
		return token[:last]
	}
	return token
}

// FuzzTokenHeader: whatever the header of a token says, a signature by a key that everybody knows or can make proves
// nothing.
func FuzzTokenHeader(f *testing.F) {
	for _, text := range []string{
		`{"alg":"RS256","kid":"rsa"}`, `{"alg":"HS256","kid":"rsa"}`, `{"alg":"none"}`, `{"alg":"ES256","kid":"ec"}`,
		`{"alg":"RS256","jwk":{"kty":"RSA"},"jku":"x","x5u":"x"}`, `{"alg":"RS256","ALG":"HS256","crit":["b64"],"b64":false}`,
	} {
		f.Add(text)
	}
	o := options("")
	o.Key = string(keySet(f, published()))
	tokens := newTokens(f, o)
	claims := part(goodClaims().with("exp", time.Now().Add(1000*time.Hour).Unix()))
	f.Fuzz(func(t *testing.T, text string) {
		content := base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + claims
		for _, token := range []string{
			content + ".", content + "." + claims,
			signText(t, content, jwa.RS256(), otherRSA()),
			signText(t, content, jwa.HS256(), keySet(t, published())),
			signText(t, content, jwa.HS256(), rsaKey().N.Bytes()),
		} {
			if got := outcome(t, tokens, request(t, "Bearer "+token)); !strings.HasPrefix(got, "401") {
				t.Errorf("got %q for the header %q", got, text)
			}
		}
	})
}
