package crashpoint

import (
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// build compiles the api and the worker: what is killed is the program that ships. Without the race detector it
// starts in a fraction of the time, and there are hundreds of starts; races are looked for where the parts are
// tested. It returns where the two are.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/api",
		"./cmd/worker")
	command.Dir = filepath.Join("..", "..")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}
