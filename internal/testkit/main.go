package testkit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests, ends their shared servers, and fails the run when a goroutine is left over:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
func Main(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit: end the shared servers:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // a failed test may leave a goroutine behind; report the failure only
	}
	if err := findLeaks(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		return 1
	}
	return 0
}

// leakLimit is how long goroutines may take to end after the last test: goleak's own limit of about a second is too
// short for a busy machine.
const leakLimit = 10 * time.Second

// findLeaks returns an error for goroutines that do not end.
func findLeaks() error {
	for until := time.Now().Add(leakLimit); ; {
		if err := goleak.Find(containerGoroutines()...); err == nil || time.Now().After(until) {
			return err
		}
	}
}
