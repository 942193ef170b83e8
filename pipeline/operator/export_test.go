package operator

import (
	"context"
	"time"
)

// SetClock has a keyring go by another clock.
func (k *Keyring) SetClock(now func() time.Time) { k.now = now }

// Kept is how many tokens a keyring remembers.
func (k *Keyring) Kept() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known)
}

// Overtaken asks Postgres of a token, and remembers the answer only when later is done.
func (k *Keyring) Overtaken(ctx context.Context, id string, later func()) error {
	found, err := k.find(ctx, id)
	if err != nil {
		return err
	}
	later()
	k.keep(found)
	return nil
}
