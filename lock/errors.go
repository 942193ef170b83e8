package lock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Expected outcomes, and calls that can't be right. Match them with errors.Is.
var (
	// ErrNotAcquired means that others hold the lock: immediately for a try, otherwise after the wait. When a context
	// ended the wait, its cause is in the chain too.
	ErrNotAcquired = errors.New("lock: held by others")

	// ErrNotHeld means that what was to be freed or extended is not held: its lease is over, it was freed before, or it
	// is another holder's. Nothing was changed.
	ErrNotHeld = errors.New("lock: not held")

	// ErrLeaseLost is the cause with which a holder's context ends when its lease is over, before another holder can
	// begin.
	ErrLeaseLost = errors.New("lock: the lease is over")

	// ErrClosed means that the Client was closed.
	ErrClosed = errors.New("lock: the client is closed")

	// ErrBadKey, ErrBadTTL and ErrBadCount refuse a call before anything is sent; the text says what to do.
	ErrBadKey   = errors.New("lock: key")
	ErrBadTTL   = errors.New("lock: duration")
	ErrBadCount = errors.New("lock: count")
)

const (
	// MaxKeyBytes bounds a key: it is sent with every call, and long ones are a mistake.
	MaxKeyBytes = 1024

	// MaxTTL bounds a lease: a holder that dies keeps everybody out for that long.
	MaxTTL = 24 * time.Hour
)

// checkKey refuses a key that no derived key can be put beside: with a "}" and no hash tag, a derived key would lie in
// another slot.
func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrBadKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %d bytes: use at most %d", ErrBadKey, len(key), MaxKeyBytes)
	case hashTag(key) == key && strings.Contains(key, "}"):
		return fmt.Errorf("%w: %.100q has a } without a hash tag: use none, or {tag} in it", ErrBadKey, key)
	default:
		return nil
	}
}

func checkTTL(name string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: %s %s: use %s to %s", ErrBadTTL, name, ttl, MinTTL, MaxTTL)
	}
	return nil
}

func checkCount(name string, n, most int64) error {
	if n < 1 || n > most {
		return fmt.Errorf("%w: %s %d: use 1 to %d", ErrBadCount, name, n, most)
	}
	return nil
}

// hashTag is the part of a key that decides its slot: what is in the first braces, or all of it.
func hashTag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// siblingKey returns a key that lies in the slot of another, which was checked.
func siblingKey(key, name string) string {
	if hashTag(key) == key {
		return "{" + key + "}:" + name
	}
	return key + ":" + name
}
