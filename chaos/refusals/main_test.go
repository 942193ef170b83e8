package refusals_test

import (
	"os"
	"testing"

	"sluice/internal/programs"
	"sluice/internal/testkit"
)

// The api and the worker are this binary again.
func TestMain(m *testing.M) {
	if code, served := programs.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}
