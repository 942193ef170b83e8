package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// The whole demo, small: its own proof decides about the exit code. Two at once don't disturb each other.
func TestTwoDemosAtOnce(t *testing.T) {
	t.Parallel()
	demos := make([]*private, 2)
	for i := range demos {
		demos[i] = startPrivate(t, nil, "demo", "--json", "--requests", "2000", "--stock", "100", "--seed", strconv.Itoa(i+1),
			"--pay-within", "25s")
	}
	for i, p := range demos {
		if code := p.wait(); code != 0 {
			t.Errorf("demo %d: got exit code %d, want 0", i+1, code)
		}
		p.mustLeaveNothing(t, "")
		out := p.out.String()
		for _, text := range []string{`"ok": true`, `"live": 100`, `"in_hand"`, `"drift": 0`, "kill -9 with"} {
			if !strings.Contains(out, text) {
				t.Errorf("demo %d did not say %q", i+1, text)
			}
		}
	}
}

// The whole demo on a Postgres of three nodes, of which the one that has the sale dies in the rush.
func TestDemoOnCitus(t *testing.T) {
	testkit.NeedCitus(t)
	t.Parallel()
	p := startPrivate(t, nil, "demo", "--citus", "--json", "--requests", "2000", "--stock", "100", "--seed", "3",
		"--pay-within", "40s")
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	p.mustLeaveNothing(t, "")
	out := p.out.String()
	for _, text := range []string{`"ok": true`, `"live": 100`, `"node_accident"`, "0 prepared transactions", "and is back"} {
		if !strings.Contains(out, text) {
			t.Errorf("the demo did not say %q", text)
		}
	}
}

func TestDemoThatIsInterruptedLeavesNothing(t *testing.T) {
	t.Parallel()
	p := startPrivate(t, nil, "demo", "--requests", "4000", "--stock", "200")
	testkit.Eventually(t, 3*time.Minute, "the rush to begin",
		func() bool { return strings.Contains(p.out.String(), "The rush") })
	p.signal(t, syscall.SIGINT)
	if code := p.wait(); code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	p.mustLeaveNothing(t, "")
	if !strings.Contains(p.out.String(), "interrupted") {
		t.Error("it did not say that it was interrupted")
	}
}
