package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sluice/pipeline"
)

const (
	// maxKeys is enough for two changes of keys that overlap.
	maxKeys = 8
	// keyBytes are those of AES-256.
	keyBytes = 32
	// encryptedPrefix begins what is encrypted; a secret that is stored as it is begins with whsec_.
	encryptedPrefix = "enc2:"
	// urlPrefix begins what was encrypted before, when only the URL was authenticated.
	urlPrefix = "enc:"
)

// keyName is part of what is stored, so it is short.
var keyName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Keyring encrypts the secrets of endpoints for storage, with AES-256-GCM. The endpoint's id and URL are authenticated
// with its secret: changed in the database, or with the secret of another endpoint, it gets nothing. A nil Keyring
// stores secrets as they are.
type Keyring struct{ keys []namedKey } // the first encrypts

type namedKey struct {
	name string
	aead cipher.AEAD
}

// ParseKeyring parses up to eight keys of the form name:base64 of 32 bytes, separated by spaces or commas. Its error
// repeats no key.
func ParseKeyring(text string) (*Keyring, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
	if len(words) == 0 || len(words) > maxKeys {
		return nil, pipeline.Errorf(pipeline.KindInvalid, "it has %d keys: use 1 to %d", len(words), maxKeys)
	}
	k := &Keyring{}
	for i, word := range words {
		name, encoded, _ := strings.Cut(word, ":")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != keyBytes || !keyName.MatchString(name) {
			return nil, pipeline.Errorf(pipeline.KindInvalid, "key %d is not a name, a colon and the base64 of %d bytes; "+
				"make one with: echo k1:$(openssl rand -base64 32)", i+1, keyBytes)
		}
		if slices.ContainsFunc(k.keys, func(other namedKey) bool { return other.name == name }) {
			return nil, pipeline.Errorf(pipeline.KindInvalid, "key %d has the name of another", i+1)
		}
		aead, err := newAEAD(key)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, namedKey{name, aead})
	}
	return k, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// boundTo is what is authenticated with the secret of an endpoint. An id has no space.
func boundTo(id int64, url string) []byte { return fmt.Appendf(nil, "%d %s", id, url) }

// isEncrypted reports whether something is stored under a key.
func isEncrypted(stored string) bool {
	return strings.HasPrefix(stored, encryptedPrefix) || strings.HasPrefix(stored, urlPrefix)
}

// encrypt returns what is stored of an endpoint's secret.
func (k *Keyring) encrypt(secret string, id int64, url string) string {
	if k == nil || secret == "" {
		return secret
	}
	first := k.keys[0]
	sealed := first.aead.Seal(nil, nil, []byte(secret), boundTo(id, url))
	return encryptedPrefix + first.name + ":" + base64.RawStdEncoding.EncodeToString(sealed)
}

// decrypt returns the secret of which something is stored. Errors: KindInvalid, which name what is missing.
func (k *Keyring) decrypt(stored string, id int64, url string) (string, error) {
	if !isEncrypted(stored) {
		return stored, nil
	}
	bound := boundTo(id, url)
	rest, current := strings.CutPrefix(stored, encryptedPrefix)
	if !current {
		rest, bound = strings.TrimPrefix(stored, urlPrefix), []byte(url)
	}
	name, encoded, _ := strings.Cut(rest, ":")
	key, ok := k.find(name)
	if !ok {
		return "", pipeline.Errorf(pipeline.KindInvalid,
			"the endpoint's secret is encrypted under the key %q, and ENCRYPTION_KEYS does not have it", name)
	}
	sealed, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return "", pipeline.Errorf(pipeline.KindInvalid, "what is stored of the endpoint's secret is not whole")
	}
	secret, err := key.aead.Open(nil, nil, sealed, bound)
	if err != nil {
		return "", pipeline.Errorf(pipeline.KindInvalid, "the endpoint's secret can't be decrypted: the key %q of "+
			"ENCRYPTION_KEYS is not the one it was encrypted under, or in the database the endpoint's URL was changed, "+
			"or the secret is another endpoint's", name)
	}
	return string(secret), nil
}

func (k *Keyring) find(name string) (namedKey, bool) {
	if k == nil {
		return namedKey{}, false
	}
	i := slices.IndexFunc(k.keys, func(key namedKey) bool { return key.name == name })
	if i < 0 {
		return namedKey{}, false
	}
	return k.keys[i], true
}

// Inspect reports whether what is stored of the secret of an endpoint is encrypted as it would be now. Errors:
// KindInvalid (it can't be decrypted).
func (k *Keyring) Inspect(stored string, id int64, url string) (current bool, err error) {
	_, err = k.decrypt(stored, id, url)
	return k.current(stored), err
}

// current reports whether something is stored as encrypt would store it now.
func (k *Keyring) current(stored string) bool {
	if k == nil {
		return true
	}
	return stored == "" || strings.HasPrefix(stored, fmt.Sprintf("%s%s:", encryptedPrefix, k.keys[0].name))
}
