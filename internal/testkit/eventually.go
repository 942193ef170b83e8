package testkit

import (
	"testing"
	"time"
)

// pollEvery is how often Eventually looks: often enough to lose no time, seldom enough to leave the processor to the code
// that is waited for.
const pollEvery = 5 * time.Millisecond

// Eventually waits until is returns true, and fails the test when it doesn't within the time. what completes the sentence
// "waited 5s for …". It must be called from the test's own goroutine.
func Eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s, in vain", within, what)
		}
		time.Sleep(pollEvery)
	}
}
