package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"sluice/pipeline"
)

const (
	// Keep is how long a key answers with its first answer, at least.
	Keep = 48 * time.Hour
	// MaxKept bounds the keys that are kept at a time: some 100 MB where every answer is a sale. An installation gets
	// there with a command every two seconds.
	MaxKept = 100_000
	// MaxAnswerBytes is what an answer may have to be kept; the largest, that of a repair, has some 50 KB.
	MaxAnswerBytes = 1 << 20
)

// Request is what an operator asks for under a key. The key itself is not stored.
type Request struct {
	KeyHash string // SHA-256 in hex
	Hash    string // of everything that is asked for
}

// NewRequest returns the request for a key. The parts are everything that makes this request another than others: where
// it goes, and what it says.
func NewRequest(key string, parts ...string) Request {
	hash := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:]) // so that two parts are not the same as one of both
		hash.Write([]byte(part))
	}
	of := sha256.Sum256([]byte(key))
	return Request{KeyHash: hex.EncodeToString(of[:]), Hash: hex.EncodeToString(hash.Sum(nil))}
}

// ValidateKey returns a KindInvalid error for what can't be a key: 1 to 255 printable ASCII characters.
func ValidateKey(key string) error {
	switch {
	case key == "" || len(key) > pipeline.MaxIdempotencyKeyBytes,
		strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }):
		return pipeline.Errorf(pipeline.KindInvalid,
			"idempotency key: use 1 to %d printable ASCII characters, a UUID for instance", pipeline.MaxIdempotencyKeyBytes)
	}
	return nil
}

// Answer is what the first request under a key was answered.
type Answer struct {
	Status int               // of HTTP, or a command's exit code
	Header map[string]string // what of the head belongs to the answer
	Body   []byte
}

// ForNow marks an error that may have passed when the same request is made again: another operator's change is under
// way, for instance. It is no answer, so that the key is not bound to it.
func ForNow(err error) error { return &passing{err} }

// IsForNow reports whether an error may have passed when the same request is made again.
func IsForNow(err error) bool {
	var p *passing
	return errors.As(err, &p)
}

type passing struct{ error }

func (p *passing) Unwrap() error { return p.error }

// The errors about a key.
var (
	ErrReused = pipeline.Errorf(pipeline.KindConflict,
		"this idempotency key was used before, for a different request; use a new key for each request")
	ErrInUse = pipeline.Errorf(pipeline.KindUnavailable,
		"a request with this idempotency key is under way; repeat it in some seconds, with the same key")
)
