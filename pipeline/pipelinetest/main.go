package pipelinetest

import (
	"flag"
	"testing"

	"sluice/internal/testkit"
)

// parallelTests is how many of a package's tests run at once, unless -parallel says otherwise: they wait for servers,
// deadlines and idle times far more than they compute.
const parallelTests = "8"

// Main is the TestMain of a package that uses a Rig.
func Main(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", parallelTests) // the testing package defines it
	}
	testkit.Main(m)
}
