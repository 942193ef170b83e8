package auth

import "time"

// SetClock has the limits of wrong tokens go by another clock.
func (o *Operators) SetClock(now func() time.Time) { o.attempts.now = now }

// KeptClients is how many clients with wrong tokens are remembered.
func (o *Operators) KeptClients() int {
	o.attempts.mu.Lock()
	defer o.attempts.mu.Unlock()
	return len(o.attempts.young) + len(o.attempts.old)
}

// MostClients is how many may be.
const MostClients = 2 * keptClients
