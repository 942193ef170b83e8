package chaos

import (
	"os"
	"testing"

	"sluice/cmd/sluice/crew"
	"sluice/internal/testkit"
)

// The APIs and workers of a run are this binary again.
func TestMain(m *testing.M) {
	if code, served := crew.Serve(os.Args[1:]); served {
		os.Exit(code)
	}
	testkit.Main(m)
}
