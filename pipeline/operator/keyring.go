package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"sluice/pipeline"
)

const (
	// Freshness is how long what Postgres said of a token is believed: a revocation takes effect within it, on every api.
	Freshness = 5 * time.Second
	// Staleness is how long it is believed while Postgres does not answer, so that operators are not locked out when
	// they are needed.
	Staleness = 5 * time.Minute
	// lookupTimeout bounds one look at Postgres.
	lookupTimeout = 2 * time.Second
	// keptTokens bounds the memory; MaxTokens are valid at once.
	keptTokens = 2 * MaxTokens
)

// Finder finds tokens.
type Finder interface {
	// Find returns the token with an id, and the store's time. Errors: KindNotFound, KindUnavailable.
	Find(ctx context.Context, id string) (Token, time.Time, error)
}

// Store is where tokens are kept. Each change writes a line into the audit log.
type Store interface {
	Finder
	// Add stores a token, and returns it as it is stored. Errors: KindInvalid, KindConflict (MaxTokens are valid).
	Add(ctx context.Context, t Token) (Token, error)
	// Revoke ends a token, and returns it and whether this call changed it. Errors: KindNotFound.
	Revoke(ctx context.Context, id, actor string) (t Token, changed bool, err error)
	// List returns the tokens that are valid, or all, by name; MaxTokens at most.
	List(ctx context.Context, all bool) ([]Token, error)
}

// Why a text is not taken.
var (
	ErrUnknown = errors.New("it is no token of this installation")
	ErrExpired = errors.New("the token has expired")
	ErrRevoked = errors.New("the token is revoked")
)

// Keyring knows whose a token is. It remembers tokens that were right for a few seconds, and nothing about others.
type Keyring struct {
	store     Finder
	bootstrap atomic.Pointer[Hash] // nil: there is none
	now       func() time.Time
	lookups   singleflight.Group

	mu    sync.Mutex // protects known
	known map[string]known
}

type known struct {
	token Token
	at    time.Time     // when Postgres was asked
	ahead time.Duration // of Postgres' clock
}

// NewKeyring returns a Keyring. bootstrap is the token that is a setting; empty: there is none.
func NewKeyring(store Finder, bootstrap string) *Keyring {
	k := &Keyring{store: store, now: time.Now, known: map[string]known{}}
	if bootstrap != "" {
		k.ReplaceBootstrap(bootstrap)
	}
	return k
}

// ReplaceBootstrap makes another text the token that is a setting. The one before counts no more.
func (k *Keyring) ReplaceBootstrap(text string) {
	hash := Hash(sha256.Sum256([]byte(text)))
	k.bootstrap.Store(&hash)
}

// Identify returns whose a token is. Errors: ErrUnknown, ErrExpired, ErrRevoked, KindUnavailable (Postgres does not
// answer, and nothing is known of the token).
func (k *Keyring) Identify(ctx context.Context, text string) (Identity, error) {
	if hash := k.bootstrap.Load(); hash != nil && hash.is(text) {
		return Identity{Name: nameOfBootstrap, Role: Admin}, nil
	}
	id, ok := idOf(text)
	if !ok {
		return Identity{}, ErrUnknown
	}
	found, err := k.find(ctx, id)
	if err != nil {
		return Identity{}, err
	}
	if !found.token.Hash.is(text) {
		return Identity{}, ErrUnknown
	}
	k.keep(found) // revoked ones too: else an earlier answer would count while Postgres is away
	return found.identity(k.now())
}

// Session is what a session keeps of the token that began it: enough to know whether that still counts, and not enough
// to be one. The text can't be told from it.
type Session struct {
	TokenID string // empty for the token that is a setting
	Print   string // of the token's hash: another setting is another token
}

// SessionOf returns what a session keeps of a token, after Identify has taken it.
func SessionOf(who Identity, text string) Session {
	hash := Hash(sha256.Sum256([]byte(text)))
	return Session{TokenID: who.TokenID, Print: hash.fingerprint()}
}

// print is another hash of a hash, so that what a browser keeps is nothing that Postgres does.
func (h *Hash) fingerprint() string {
	sum := sha256.Sum256(append([]byte("session:"), h[:]...))
	return hex.EncodeToString(sum[:16])
}

// Continue returns whose session it is, if its token still counts. It costs what Identify does. Errors: ErrUnknown,
// ErrExpired, ErrRevoked, KindUnavailable.
func (k *Keyring) Continue(ctx context.Context, s Session) (Identity, error) {
	if s.TokenID == "" {
		if hash := k.bootstrap.Load(); hash != nil && s.Print == hash.fingerprint() {
			return Identity{Name: nameOfBootstrap, Role: Admin}, nil
		}
		return Identity{}, ErrUnknown
	}
	found, err := k.find(ctx, s.TokenID)
	if err != nil {
		return Identity{}, err
	}
	if found.token.Hash.fingerprint() != s.Print {
		return Identity{}, ErrUnknown
	}
	k.keep(found)
	return found.identity(k.now())
}

// identity is whose a token is, at a time of this machine's clock. Errors: ErrExpired, ErrRevoked.
func (k *known) identity(now time.Time) (Identity, error) {
	switch k.token.State(now.Add(k.ahead)) {
	case Revoked:
		return Identity{}, ErrRevoked
	case Expired:
		return Identity{}, ErrExpired
	case Valid:
	}
	return Identity{TokenID: k.token.ID, Name: k.token.Name, Role: k.token.Role}, nil
}

// Remembers reports whether a text is a token that was right here before, whatever became of it. Nobody is asked. The
// token that is a setting is not remembered.
func (k *Keyring) Remembers(text string) bool {
	id, ok := idOf(text)
	if !ok {
		return false
	}
	k.mu.Lock()
	kept, found := k.known[id]
	k.mu.Unlock()
	return found && kept.token.Hash.is(text)
}

// find returns what Postgres says of a token, or said lately.
func (k *Keyring) find(ctx context.Context, id string) (known, error) {
	now := k.now()
	k.mu.Lock()
	kept, found := k.known[id]
	k.mu.Unlock()
	if found && now.Sub(kept.at) < Freshness {
		return kept, nil
	}
	fetched, err, _ := k.lookups.Do(id, func() (any, error) {
		// For all that wait, whatever becomes of the first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		token, stores, err := k.store.Find(ctx, id)
		return known{token, now, stores.Sub(now)}, err
	})
	switch {
	case err == nil:
		return fetched.(known), nil
	case pipeline.KindOf(err) == pipeline.KindNotFound:
		k.forget(id)
		return known{}, ErrUnknown
	case found && now.Sub(kept.at) < Staleness:
		return kept, nil
	default:
		return known{}, err
	}
}

// keep remembers a token whose text was right, unless a later answer is known: two requests may be here in the wrong
// order, and a token that is revoked would be valid again.
func (k *Keyring) keep(found known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if kept, ok := k.known[found.token.ID]; ok && kept.at.After(found.at) {
		return
	}
	if len(k.known) >= keptTokens {
		clear(k.known) // they are asked for again
	}
	k.known[found.token.ID] = found
}

func (k *Keyring) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, id)
}
