package auth

import (
	"net/netip"
	"sync"
	"time"
)

// The limits of wrong tokens. A person who mistypes is not in the way of them; a program that guesses is.
const (
	addressBurst = 10              // wrong tokens of one address in a row
	addressEvery = 6 * time.Second // after those, one in this time
	allBurst     = 100             // wrong tokens of all addresses together
	allEvery     = time.Second
	// debtOf is how far beyond its burst a bucket can get, by requests that arrive at once, as a multiple of the burst.
	debtOf = 6
	// trustedFor is how long an address that sent a right token is served although others have used up what all may try.
	trustedFor = 10 * time.Minute
	// keptClients bounds each of the two generations of clients with wrong tokens, and those with a right one, some 100
	// bytes each.
	keptClients = 5_000
)

// bucket counts wrong tokens, and forgets them with time.
type bucket struct {
	used float64 // of the burst, when it was looked at last
	at   time.Time
}

// level returns how many wrong tokens count now.
func (b *bucket) level(now time.Time, every time.Duration) float64 {
	return max(0, b.used-now.Sub(b.at).Seconds()/every.Seconds())
}

func (b *bucket) add(now time.Time, burst int, every time.Duration) {
	b.used = min(b.level(now, every)+1, float64(burst*(1+debtOf)))
	b.at = now
}

// wait is how long until another try is allowed; 0: it is now.
func (b *bucket) wait(now time.Time, burst int, every time.Duration) time.Duration {
	over := b.level(now, every) - float64(burst) + 1
	return max(0, time.Duration(over*float64(every)))
}

// attempts slows down guessing, by the client (its address, or its network in IPv6) and in all.
type attempts struct {
	now func() time.Time

	mu    sync.Mutex // protects the rest
	all   bucket
	young map[netip.Prefix]*bucket // of clients that sent wrong tokens
	old   map[netip.Prefix]*bucket
	right map[netip.Prefix]time.Time // when a client sent a right one last; nothing that is guessed gets in
}

// wait is how long a client must wait before its tokens are looked at; 0: not at all.
func (a *attempts) wait(from netip.Prefix) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if own := a.find(from); own != nil {
		if wait := own.wait(now, addressBurst, addressEvery); wait > 0 {
			return wait
		}
	}
	if at, found := a.right[from]; found && now.Sub(at) < trustedFor {
		return 0
	}
	return a.all.wait(now, allBurst, allEvery)
}

func (a *attempts) wrong(from netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	own := a.find(from)
	if own == nil {
		own = &bucket{}
	}
	own.add(now, addressBurst, addressEvery)
	a.keep(from, own)
	a.all.add(now, allBurst, allEvery)
}

func (a *attempts) rightly(from netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.right == nil || len(a.right) >= keptClients {
		a.right = map[netip.Prefix]time.Time{}
	}
	a.right[from] = a.now()
}

// find must be called with the lock. It returns nil for a client without wrong tokens.
func (a *attempts) find(from netip.Prefix) *bucket {
	if b := a.young[from]; b != nil {
		return b
	}
	return a.old[from]
}

// keep must be called with the lock.
func (a *attempts) keep(from netip.Prefix, b *bucket) {
	if a.young == nil || len(a.young) >= keptClients && a.young[from] == nil {
		a.young, a.old = map[netip.Prefix]*bucket{}, a.young
	}
	a.young[from] = b
}
