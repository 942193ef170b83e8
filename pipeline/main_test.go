package pipeline_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"sluice/internal/testkit"
)

// parallelTests is how many of these tests run at once, unless -parallel says otherwise: they wait for servers, deadlines
// and idle times far more than they compute.
const parallelTests = "8"

func TestMain(m *testing.M) {
	if url := os.Getenv(nodeRedis); url != "" {
		if err := runNode(url, os.Getenv(nodeDatabase)); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", parallelTests) // the testing package defines it
	}
	testkit.Main(m)
}
