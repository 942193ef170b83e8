package clocks_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

const (
	wrongBy = time.Hour
	// wrongFor is how long each clock is wrong, unless SLUICE_CLOCKS says something else.
	wrongFor = 2 * time.Second
	// after is how long each is right again before the next one moves: long enough to see what it left behind.
	after = 4 * time.Second
	// standstill is generous: a busy machine is no fault. What believes a wrong clock stands still for an hour.
	standstill = 20 * time.Second
	warmUp     = 6 * time.Second
)

// TestClocks moves one clock after the other.
func TestClocks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	t.Parallel()
	hold := wrongFor
	if text := os.Getenv("SLUICE_CLOCKS"); text != "" {
		var err error
		hold, err = time.ParseDuration(text)
		must(t, err)
	}
	r := newRig(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	defer func() { stop(); <-ended }()
	r.moving(time.Now(), warmUp)

	table := []string{fmt.Sprintf("%-12s %6s", "clock", "by") + "  " + strings.Join(signals, "  ")}
	for _, name := range []string{"Redis", "Postgres", "api-1", "worker-1"} {
		for _, by := range []time.Duration{wrongBy, -wrongBy} {
			since := time.Now()
			must(t, r.clocks[name].set(by))
			if off := r.clocks[name].reads(time.Now()); (off - by).Abs() > wrongBy/2 {
				t.Fatalf("the clock of %s is off by %s, want %s", name, off, by)
			}
			if name == "api-1" { // which is strict: what it notes of this, it notes by the wrong clock
				r.confirms(ctx, false)
			}
			time.Sleep(hold) // this is the fault, nothing is waited for
			r.confirms(ctx, true)
			must(t, r.clocks[name].set(0))
			r.moving(time.Now(), after)
			row := fmt.Sprintf("%-12s %6s", name, by)
			for _, signal := range signals {
				still := r.standstill(signal, since)
				row += fmt.Sprintf("  %*.1fs", len(signal)-1, still.Seconds())
				if still > standstill {
					t.Errorf("%s %s off: no %s for %s", name, by, signal, still)
				}
			}
			table = append(table, row)
		}
	}
	stop()
	<-ended
	t.Logf("each clock was wrong for %s; seconds without:\n%s", hold, strings.Join(table, "\n"))
	r.settled()
}

// moving waits until every signal has come twice since an instant, and at least for some time.
func (r *rig) moving(since time.Time, atLeast time.Duration) {
	r.Helper()
	time.Sleep(time.Until(since.Add(atLeast)))
	testkit.Eventually(r.T, 3*standstill, "everything to go on", func() bool {
		r.alive()
		r.mu.Lock()
		defer r.mu.Unlock()
		return !slices.ContainsFunc(signals, func(signal string) bool {
			at := r.came[signal]
			return len(at) < 2 || at[len(at)-2].Before(since)
		})
	})
}

// standstill is the longest time without a signal since an instant.
func (r *rig) standstill(signal string, since time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var longest time.Duration
	last := since
	for _, at := range r.came[signal] {
		if at.After(since) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return max(longest, time.Since(last))
}
