package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"regexp"
	"strings"
	"time"

	"sluice/pipeline"
)

const (
	// prefix lets people and scanners of secrets know a token when they see one.
	prefix = "sluice_"
	// idBytes make ids that no two tokens share by chance.
	idBytes = 10
	// secretBytes can't be guessed, however fast. That is why a plain SHA-256 is enough to store them: what makes the
	// hashes of passwords slow makes up for passwords that people can remember.
	secretBytes = 32

	maxNameBytes = 64
	// MaxLife is the longest that a token may be valid. A forgotten one ends by itself.
	MaxLife = 366 * 24 * time.Hour
	// MaxTokens is how many tokens may be valid at once; more is no list that anybody looks through.
	MaxTokens = 1000
	// nameOfBootstrap is whom the audit log names for the token that is a setting.
	nameOfBootstrap = "bootstrap"
	// MinBootstrapBytes is the least length of that token. Shorter ones can be guessed.
	MinBootstrapBytes = 32
)

// encoding has no character that ends a word, so that a double click takes all of a token.
var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]*$`)

// Hash is what is stored of a token's text.
type Hash [sha256.Size]byte

// Token is a token without its text.
type Token struct {
	ID        string
	Name      string // whose it is
	Role      Role
	Hash      Hash
	CreatedAt time.Time
	CreatedBy string
	ExpiresAt time.Time
	RevokedAt time.Time // zero: it is not
	RevokedBy string
}

// New makes a token for somebody, and its text, which is not stored anywhere. The time by which ExpiresAt is judged is
// the store's. Errors: KindInvalid.
func New(name string, role Role, expires time.Time, createdBy string) (t Token, text string, err error) {
	if len(name) > maxNameBytes || !validName.MatchString(name) {
		return t, "", pipeline.Errorf(pipeline.KindInvalid,
			"name %q: use 1 to %d of a-z, 0-9, '.', '_', '@' and '-', such as ann or deploy-bot", name, maxNameBytes)
	}
	if _, err := ParseRole(string(role)); err != nil {
		return t, "", err
	}
	id, secret := random(idBytes), random(secretBytes)
	text = prefix + id + "_" + secret
	return Token{
		ID: id, Name: name, Role: role, Hash: sha256.Sum256([]byte(text)), ExpiresAt: expires, CreatedBy: createdBy,
	}, text, nil
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // documented never to fail
	return strings.ToLower(encoding.EncodeToString(b))
}

// idOf returns the id in a token's text.
func idOf(text string) (id string, ok bool) {
	rest, ours := strings.CutPrefix(text, prefix)
	id, secret, found := strings.Cut(rest, "_")
	return id, ours && found && len(id) == encoding.EncodedLen(idBytes) &&
		len(secret) == encoding.EncodedLen(secretBytes) && !strings.ContainsFunc(id+secret, notOfToken)
}

func notOfToken(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') }

// is compares in constant time, so that an answer's time says nothing of the hash.
func (h *Hash) is(text string) bool {
	given := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(h[:], given[:]) == 1
}

// State says whether a token counts at some time.
func (t *Token) State(now time.Time) State {
	switch {
	case !t.RevokedAt.IsZero():
		return Revoked
	case !now.Before(t.ExpiresAt):
		return Expired
	default:
		return Valid
	}
}

// State is whether a token counts.
type State string

// The states.
const (
	Valid   State = "valid"
	Expired State = "expired"
	Revoked State = "revoked"
)

// Identity is who a request of an operator comes from.
type Identity struct {
	TokenID string // empty for the token that is a setting
	Name    string
	Role    Role
}

// Actor is the name in the audit log. No token can be named so that it looks like another kind of actor.
func (i Identity) Actor() string {
	if i.TokenID == "" {
		return i.Name
	}
	return "token:" + i.Name
}

// ValidateBootstrap returns a KindInvalid error for a token that could be guessed. It does not repeat it.
func ValidateBootstrap(token string) error {
	if token == "" {
		return nil
	}
	distinct := map[rune]bool{}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return pipeline.Errorf(pipeline.KindInvalid, "it has a character that is no printable ASCII, or a space")
		}
		distinct[r] = true
	}
	const leastDistinct = 10 // 32 random hex digits have less by a chance of 1 in 2,000
	if len(token) < MinBootstrapBytes || len(distinct) < leastDistinct {
		return pipeline.Errorf(pipeline.KindInvalid, "it can be guessed: use at least %d random characters, as from: "+
			"openssl rand -hex 32; or leave it out, and make tokens with: sluice token add", MinBootstrapBytes)
	}
	return nil
}
