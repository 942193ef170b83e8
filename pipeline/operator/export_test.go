package operator

import "time"

// SetClock has a keyring go by another clock.
func (k *Keyring) SetClock(now func() time.Time) { k.now = now }

// Kept is how many tokens a keyring remembers.
func (k *Keyring) Kept() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known)
}
