package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// verifiedTokens is how many verified tokens are remembered, some 200 bytes each: 40 MB. Beyond that, the ones that
	// were not used lately are verified again, which costs up to a tenth of a millisecond.
	verifiedTokens = 200_000
	// verifiedShards is how many requests can look at once without waiting for each other.
	verifiedShards = 32
)

// tokenHash stands for a token, so that memory has no credentials.
type tokenHash [sha256.Size]byte

// verifiedToken is what a token proved.
type verifiedToken struct {
	user  string
	until time.Time // its exp
	keys  *keySet   // by which it was verified; with others it must be verified again
}

// verified remembers tokens that were verified. Nothing else gets in, so that guessing fills no memory.
type verified struct{ shards [verifiedShards]verifiedShard }

// verifiedShard keeps two generations: once the younger is full, the older one is forgotten. What is used is carried
// over.
type verifiedShard struct {
	mu    sync.Mutex // protects both
	young map[tokenHash]verifiedToken
	old   map[tokenHash]verifiedToken
}

// generationSize is the limit of each generation of a shard.
const generationSize = verifiedTokens / verifiedShards / 2

// find returns who sent a token, if it was verified with these keys and has not expired.
func (v *verified) find(hash *tokenHash, keys *keySet, now time.Time) (user string, found bool) {
	s := v.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	token, found := s.young[*hash]
	if !found {
		if token, found = s.old[*hash]; found {
			s.keep(hash, token)
		}
	}
	if !found || token.keys != keys || !now.Before(token.until) {
		return "", false
	}
	return token.user, true
}

func (v *verified) add(hash *tokenHash, token verifiedToken) {
	s := v.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(hash, token)
}

func (v *verified) shard(hash *tokenHash) *verifiedShard { return &v.shards[hash[0]%verifiedShards] }

// keep must be called with the lock.
func (s *verifiedShard) keep(hash *tokenHash, token verifiedToken) {
	if s.young == nil || len(s.young) >= generationSize {
		s.young, s.old = map[tokenHash]verifiedToken{}, s.young
	}
	s.young[*hash] = token
}
