package entry

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
)

// Limits of keys. 32 bytes are as many as the code has; more than 64 would be hashed anyway (RFC 2104).
const (
	minSecretBytes = 32
	maxSecretBytes = 64
	maxKeyIDBytes  = 16
	maxKeys        = 8
)

// keyPurpose separates these keys from any other that may be derived from the same secret.
const keyPurpose = "sluice: entry tickets, version 1"

// Key is a secret under which tickets are signed. Its id is part of each ticket, and no secret.
type Key struct {
	ID     string // 1 to 16 of a-z, 0-9 and '-'
	Secret []byte // 32 to 64 bytes
}

// ParseKeys reads keys as id:base64, separated by commas or spaces, the one that signs first; at least one. The error
// counts the keys, and never repeats one.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		id, encoded, _ := strings.Cut(one, ":")
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			secret = nil // which validateKeys refuses
		}
		keys = append(keys, Key{id, secret})
	}
	if len(keys) == 0 {
		return nil, errNoKey
	}
	return keys, validateKeys(keys)
}

func validateKeys(keys []Key) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("it has %d keys: use at most %d", len(keys), maxKeys)
	}
	seen := map[string]bool{}
	for i, key := range keys {
		switch {
		case !validKeyID(key.ID) || len(key.Secret) < minSecretBytes || len(key.Secret) > maxSecretBytes:
			return fmt.Errorf("key %d is not an id of 1 to %d of a-z, 0-9 and '-', a colon, and the base64 of %d to %d bytes; "+
				"make one with: echo k1:$(openssl rand -base64 32)", i+1, maxKeyIDBytes, minSecretBytes, maxSecretBytes)
		case seen[key.ID]:
			return fmt.Errorf("key %d has the id of another one: each key needs its own", i+1)
		}
		seen[key.ID] = true
	}
	return nil
}

func validKeyID(id string) bool {
	return id != "" && len(id) <= maxKeyIDBytes && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// Ring is the keys that an api has. The first one signs, each of them verifies. It may be used from many goroutines at
// once, while it is replaced too; the zero Ring has no key.
type Ring struct {
	signers atomic.Pointer[[]*signer]
}

// NewRing returns a ring. Errors: those of Replace.
func NewRing(keys ...Key) (*Ring, error) {
	r := &Ring{}
	return r, r.Replace(keys)
}

// Replace puts other keys in the place of those that the ring has. What is signed or verified at the same moment is so
// by the ones or by the others. A ticket ends with the key that signed it: leave a key in the ring for Life after the
// last api has stopped signing with it. Errors leave the ring as it is: a key that breaks a rule, two with the same id.
func (r *Ring) Replace(keys []Key) error {
	if err := validateKeys(keys); err != nil {
		return err
	}
	signers := make([]*signer, len(keys))
	for i, key := range keys {
		var err error
		if signers[i], err = newSigner(key); err != nil {
			return err
		}
	}
	r.signers.Store(&signers)
	return nil
}

// Empty reports whether there is no key, so that no ticket can be given or verified.
func (r *Ring) Empty() bool { return len(r.all()) == 0 }

func (r *Ring) all() []*signer {
	if signers := r.signers.Load(); signers != nil {
		return *signers
	}
	return nil
}

var errNoKey = errors.New("there is no key")

// first is the one that signs, nil without any.
func (r *Ring) first() *signer {
	if all := r.all(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// named is the one with an id, nil where there is none.
func (r *Ring) named(id []byte) *signer {
	all := r.all()
	if i := slices.IndexFunc(all, func(s *signer) bool { return s.id == string(id) }); i >= 0 {
		return all[i]
	}
	return nil
}

// signer makes the codes of one key.
type signer struct {
	id   string
	pool sync.Pool // of *coder: a keyed hash costs more to make than to use
}

// coder is a keyed hash with the memory that one use of it needs.
type coder struct {
	mac    hash.Hash
	signed []byte
	code   [sha256.Size]byte
}

func newSigner(key Key) (*signer, error) {
	derived, err := hkdf.Key(sha256.New, key.Secret, nil, keyPurpose, sha256.Size)
	if err != nil {
		return nil, err
	}
	s := &signer{id: key.ID}
	s.pool.New = func() any {
		return &coder{mac: hmac.New(sha256.New, derived), signed: make([]byte, 0, maxSignedBytes)}
	}
	return s, nil
}

// code appends the code over a ticket's fields, its sale and its buyer to a slice. Only the buyer, which comes last,
// has no length before it, so no two tickets differ in what they mean and agree in what is signed.
func (s *signer) code(to, fields []byte, saleID, userID string) []byte {
	c := s.pool.Get().(*coder)
	defer s.pool.Put(c)
	c.signed = append(c.signed[:0], fields...)
	c.signed = append(c.signed, byte(len(saleID)))
	c.signed = append(c.signed, saleID...)
	c.signed = append(c.signed, userID...)
	c.mac.Reset()
	_, _ = c.mac.Write(c.signed) // documented never to fail
	return append(to, c.mac.Sum(c.code[:0])...)
}
