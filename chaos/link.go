package chaos

import (
	"sync"

	"sluice/internal/faultnet"
)

// link is a connection that two faults at once may cut or freeze: it is whole again when the last of them is over.
type link struct {
	*faultnet.Proxy

	mu           sync.Mutex // protects the rest
	cuts, frozen int        // faults that have it cut, or frozen
}

// Cut breaks the connection until as many Heals.
func (l *link) Cut() { l.count(&l.cuts, 1, l.Proxy.Cut) }

// Heal ends one Cut.
func (l *link) Heal() { l.count(&l.cuts, -1, l.Proxy.Heal) }

// Freeze makes the connection half-open until as many Thaws.
func (l *link) Freeze() { l.count(&l.frozen, 1, l.Proxy.Freeze) }

// Thaw ends one Freeze.
func (l *link) Thaw() { l.count(&l.frozen, -1, l.Proxy.Thaw) }

// count switches when the first fault begins, or the last one ends.
func (l *link) count(faults *int, more int, change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *faults += more; *faults == max(more, 0) {
		change()
	}
}

// reset ends whatever is wrong with the connection.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts, l.frozen = 0, 0
	l.Proxy.Heal()
	l.Proxy.Thaw()
	l.Slow(0)
	l.KeepReplies()
}
