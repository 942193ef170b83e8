package limits

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// holdTick is how exact the end of a hold is. A connection is held for holdLeast to holdMost ticks: one to two
	// seconds, as an answer 429 is held back, and spread, so that those who were refused don't all come back at once.
	holdTick  = 50 * time.Millisecond
	holdLeast = 21 // the first is half over on average
	holdMost  = 41
)

// held are connections that were refused and not yet reset. Resetting costs more than it costs to dial again: a client
// that dials as fast as it can, over as many connections as it may have, gets a second's rest here each time.
type held struct {
	mu    sync.Mutex               // protects what follows
	due   [holdMost + 1][]net.Conn // due[(at+n)%len(due)] are reset in n ticks
	at    int
	count int
	most  int
	ended bool

	stop    chan struct{}
	running sync.WaitGroup
}

// newHeld holds most connections, until release.
func newHeld(most int) *held {
	h := &held{most: most, stop: make(chan struct{})}
	if most > 0 {
		h.running.Go(h.run)
	}
	return h
}

// keep holds a connection, unless there is no room.
func (h *held) keep(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.count >= h.most {
		return false
	}
	slot := (h.at + holdLeast + rand.IntN(holdMost-holdLeast+1)) % len(h.due)
	h.due[slot] = append(h.due[slot], conn)
	h.count++
	return true
}

func (h *held) run() {
	ticker := time.NewTicker(holdTick)
	defer ticker.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-ticker.C:
			discardAll(h.next())
		}
	}
}

// next goes on by a tick, and returns what is due then.
func (h *held) next() []net.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = (h.at + 1) % len(h.due)
	now := h.due[h.at]
	h.due[h.at] = nil
	h.count -= len(now)
	return now
}

// release resets all that are held, and those that come later at once.
func (h *held) release() {
	h.mu.Lock()
	first := !h.ended
	h.ended = true
	h.mu.Unlock()
	if !first {
		return
	}
	close(h.stop)
	h.running.Wait()
	for range len(h.due) {
		discardAll(h.next())
	}
}

func discardAll(connections []net.Conn) {
	for _, conn := range connections {
		discard(conn)
	}
}
