package testkit

import (
	"testing"
	"time"
)

// pollEvery is how often Eventually checks: often enough to lose no time, seldom enough to leave the processor to the
// code under test.
const pollEvery = 5 * time.Millisecond

// Eventually waits until condition returns true, and fails the test when it does not in time. what completes the
// sentence "waited 5s for …". It must be called from the test's own goroutine.
func Eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s, in vain", within, what)
		}
		time.Sleep(pollEvery)
	}
}
