package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"slices"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"sluice/pipeline"
)

const (
	// maxKeys bounds a set of keys. Issuers publish a handful.
	maxKeys = 64
	// maxCandidates is how many keys are tried for one token: more than one only where keys share an id or the token
	// names none. Each costs up to a tenth of a millisecond.
	maxCandidates = 4
	// minSecretBytes is the least length of a secret of HS256 and its relatives (RFC 7518, section 3.2).
	minSecretBytes = 32
)

// algorithmsOf lists, by type of key, the algorithms that a token may be signed with: each key goes with its own type
// only, so that no public key is ever taken for the secret of an HS256.
var algorithmsOf = map[string][]string{
	"RSA":        {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
	"EC P-256":   {"ES256"},
	"EC P-384":   {"ES384"},
	"EC P-521":   {"ES512"},
	"Ed25519":    {"EdDSA", "Ed25519"},
	"oct secret": {"HS256", "HS384", "HS512"},
}

// DefaultAlgorithms are what the usual issuers sign with.
var DefaultAlgorithms = []string{"RS256", "ES256", "EdDSA"}

// knownAlgorithm reports whether a setting may name an algorithm. "none" is none.
func knownAlgorithm(name string) bool {
	for _, names := range algorithmsOf {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// verifyKey is a key that tokens may be signed with.
type verifyKey struct {
	id         string   // empty: it has none
	algorithms []string // pinned: those of the settings that are of this key's type, and the key's own where it names one
	material   any      // public key or secret, as package crypto has it
}

// keySet is a fixed set of keys. A set never changes: a new one takes its place.
type keySet struct {
	keys []verifyKey
	// anyID: the keys verify tokens whatever key id these name. It is so for a key that was set by hand and has no id.
	anyID bool
}

// candidates returns the keys that a token of this key id and algorithm may be signed with. named reports whether the
// set has the id at all.
func (s *keySet) candidates(id, algorithm string) (fitting []verifyKey, named bool) {
	for _, key := range s.keys {
		if id != "" && key.id != id && (key.id != "" || !s.anyID) {
			continue
		}
		named = true
		if slices.Contains(key.algorithms, algorithm) && len(fitting) < maxCandidates {
			fitting = append(fitting, key)
		}
	}
	return fitting, named
}

// readKeys reads a JWK, a JWK set or PEM. What can't verify a token by these algorithms is left out: keys for
// encryption, of unknown types, too weak. It is an error (pipeline.KindInvalid) if nothing is left. Secrets are read
// where they are allowed only.
func readKeys(text []byte, algorithms []string, secrets bool) ([]verifyKey, error) {
	pem := strings.HasPrefix(strings.TrimSpace(string(text)), "-----BEGIN")
	set, err := jwk.Parse(text, jwk.WithPEM(pem), jwk.WithMaxKeys(maxKeys), jwk.WithStrictKeySetParsing(false))
	if err != nil {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "neither a JWK, a JWK set nor a public key in PEM")
	}
	var keys []verifyKey
	for i := range set.Len() {
		key, _ := set.Key(i)
		if usable, ok := readKey(key, algorithms, secrets); ok {
			keys = append(keys, usable)
		}
	}
	if len(keys) == 0 {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "none of its %d keys verifies a signature by %s", set.Len(),
			strings.Join(algorithms, ", "))
	}
	return keys, nil
}

func readKey(key jwk.Key, algorithms []string, secrets bool) (usable verifyKey, ok bool) {
	if key == nil || jwk.IsUnsupportedKey(key) || key.Validate() != nil {
		return usable, false
	}
	if use, given := key.KeyUsage(); given && use != string(jwk.ForSignature) {
		return usable, false
	}
	if key.KeyType() == jwa.OctetSeq() && !secrets {
		return usable, false
	}
	raw, err := jwk.PublicRawKeyOf(key)
	if err != nil {
		return usable, false
	}
	kind, material := kindOf(raw)
	pinned := algorithmsOf[kind]
	if own, given := key.Algorithm(); given {
		pinned = intersection(pinned, []string{own.String()})
	}
	usable.id, _ = key.KeyID()
	usable.algorithms, usable.material = intersection(pinned, algorithms), material
	return usable, len(usable.algorithms) > 0
}

// kindOf names the type of a key as algorithmsOf does, or "" for one that nothing is verified with.
func kindOf(raw any) (kind string, material any) {
	switch key := raw.(type) {
	case *rsa.PublicKey:
		return "RSA", key
	case *ecdsa.PublicKey:
		return "EC " + key.Curve.Params().Name, key
	case *ed25519.PublicKey:
		return "Ed25519", *key
	case ed25519.PublicKey:
		return "Ed25519", key
	case []byte:
		if len(key) >= minSecretBytes {
			return "oct secret", key
		}
	}
	return "", nil
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
